# Items of scripts/dropin: DDP and FSDP2 give the same training as one process.
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from dropin.expectation import Skip, expect

BATCH, STEPS = 32, 4


def mlp(ctx, width=96, depth=3):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, width), torch.nn.ReLU()]
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 8)).to(ctx.device)


def data(ctx):
    torch.manual_seed(1)
    return torch.randn(ctx.n * BATCH, 64).to(ctx.device), torch.randn(ctx.n * BATCH, 8).to(ctx.device)


def steps(net, x, y, mean=lambda loss: loss, after=None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach()).item())
        if after:
            after()
    return losses


def mean_over_ranks(loss):
    loss = loss.clone()
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def against_one_process(ctx, make, tolerance):
    """Losses of `make(model)` on this rank's part of the data and of one process on all of it."""
    x, y = data(ctx)
    alone = steps(mlp(ctx), x, y)
    part = slice(ctx.rank * BATCH, (ctx.rank + 1) * BATCH)
    ours = steps(make(mlp(ctx)), x[part], y[part], mean_over_ranks)
    worst = expect("losses", torch.tensor(ours), torch.tensor(alone), tolerance)
    if ours[-1] >= ours[0]:
        raise AssertionError(f"the loss does not fall: {ours}")
    ctx.values["losses"] = ours
    return f"losses within {worst:.1e} of one process"


def ddp_model(ctx, net, **options):
    ids = [0] if ctx.device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(net, device_ids=ids, bucket_cap_mb=0.05, **options)


def ddp(ctx):
    return against_one_process(ctx, lambda net: ddp_model(ctx, net), 1e-5)


def ddp_static_graph(ctx):
    return against_one_process(ctx, lambda net: ddp_model(ctx, net, static_graph=True, gradient_as_bucket_view=True), 1e-5)


def ddp_hooks(ctx):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    texts = []
    for name, hook, tolerance in (("allreduce", default_hooks.allreduce_hook, 1e-5), ("fp16", default_hooks.fp16_compress_hook, 2e-2),
                                  ("bf16", default_hooks.bf16_compress_hook, 5e-2)):
        def make(net, hook=hook):
            wrapped = ddp_model(ctx, net)
            wrapped.register_comm_hook(None, hook)
            return wrapped
        texts.append(f"{name}: {against_one_process(ctx, make, tolerance)}")

    def power(net):
        wrapped = ddp_model(ctx, net)
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return wrapped
    texts.append(f"PowerSGD: {against_one_process(ctx, power, 0.3)}")
    return "; ".join(texts)


def ddp_no_sync_and_join(ctx):
    x, y = data(ctx)
    net, part = ddp_model(ctx, mlp(ctx)), slice(ctx.rank * BATCH, (ctx.rank + 1) * BATCH)
    with net.no_sync():
        mse_loss(net(x[part]), y[part]).backward()
    mse_loss(net(x[part]), y[part]).backward()
    with net.join():  # ranks have different numbers of batches
        for _ in range(1 + ctx.rank % 2):
            mse_loss(net(x[part]), y[part]).backward()


def fsdp2(ctx):
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise Skip(f"this PyTorch has no FSDP2: {error}") from error

    def shard(net):
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        return fully_shard(net)
    return against_one_process(ctx, shard, 1e-5)


ITEMS = {"DDP with buckets": ddp, "DDP static graph, bucket views": ddp_static_graph, "DDP comm hooks": ddp_hooks,
         "DDP no_sync and join": ddp_no_sync_and_join, "FSDP2": fsdp2}
