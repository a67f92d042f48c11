# Items of scripts/dropin: tensor parallel layers and pipelines, compared with the same model in one process.
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from dropin.expectation import Skip, expect


def tensor_parallel(ctx):
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    except ImportError as error:
        raise Skip(f"this PyTorch has no DTensor: {error}") from error
    mesh = init_device_mesh(ctx.device.type, (ctx.n,))

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32)).to(ctx.device)
    torch.manual_seed(1)
    x = torch.randn(24, 64).to(ctx.device)
    alone, ours = model(), parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    want, got = alone(x), ours(x)
    worst = expect("forward", got, want, 1e-5)
    want.square().mean().backward()
    got.square().mean().backward()
    for a, b in zip(alone.parameters(), ours.parameters()):
        grad = b.grad.full_tensor() if isinstance(b.grad, DTensor) else b.grad
        worst = max(worst, expect("gradient", grad, a.grad, 1e-5))
    whole = torch.arange(16.0 * 32, device=ctx.device).view(16, 32)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    expect("Shard(0) to Shard(1)", sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    partial = DTensor.from_local(whole.clone(), mesh, [Partial()])
    expect("Partial to Replicate", partial.redistribute(mesh, [Replicate()]).to_local(), whole * ctx.n)
    expect("Partial to Shard(0)", partial.redistribute(mesh, [Shard(0)]).full_tensor(), whole * ctx.n)
    return f"within {worst:.1e} of one process"


def stage(ctx, index):
    torch.manual_seed(10 + index)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()).to(ctx.device)


def pipeline(ctx):
    try:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    except ImportError as error:
        raise Skip(f"this PyTorch has no pipelining: {error}") from error
    torch.manual_seed(1)
    x, y = torch.randn(64, 64).to(ctx.device), torch.randn(64, 64).to(ctx.device)
    whole = torch.nn.Sequential(*[stage(ctx, index) for index in range(ctx.n)])
    loss = mse_loss(whole(x), y)
    loss.backward()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        own = stage(ctx, ctx.rank)
        running = schedule(PipelineStage(own, ctx.rank, ctx.n, ctx.device), n_microbatches=8, loss_fn=mse_loss)
        losses = []
        if ctx.rank == 0:
            running.step(x, **({"target": y, "losses": losses} if ctx.n == 1 else {}))
        elif ctx.rank == ctx.n - 1:
            running.step(target=y, losses=losses)
            expect("loss", torch.stack(losses).mean(), loss, 1e-5)
        else:
            running.step()
        for a, b in zip(whole[ctx.rank].parameters(), own.parameters()):
            expect(f"gradient with {schedule.__name__}", b.grad, a.grad, 1e-4)
    return "GPipe and 1F1B as one process"


def pipeline_by_hand(ctx):
    """Stages that only send and receive, as many frameworks do."""
    x = torch.full((256, 64), 1.0, device=ctx.device)
    for _ in range(8):
        if ctx.rank > 0:
            dist.recv(x, ctx.rank - 1)
        x = x + 1
        if ctx.rank < ctx.n - 1:
            dist.send(x, ctx.rank + 1)
            x = torch.full((256, 64), 1.0, device=ctx.device)
    if ctx.rank == ctx.n - 1:
        expect("the last stage", x, torch.full((256, 64), 1.0 + ctx.n))


ITEMS = {"DTensor tensor parallel": tensor_parallel, "pipeline schedules": pipeline, "pipeline send/recv": pipeline_by_hand}
