# Items of scripts/dropin that measure all_reduce and training steps, alike for every library.
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from dropin.expectation import Skip, expect

# Size and number of calls timed together. Threads that have just begun to spin need a while until each has a core.
SIZES = {"8 KiB": (8 << 10, 500), "1 MiB": (1 << 20, 120), "16 MiB": (16 << 20, 10), "128 MiB": (128 << 20, 2)}


# Settings that may change the speed between hosts. Every communicator reads them again.
SETTINGS = ("WEFT_PROXY_THREADS=1", "WEFT_PROXY_THREADS=2", "WEFT_PROXY_THREADS=3", "WEFT_PROXY_THREADS=6",
            "WEFT_PROXY_THREADS=8", "WEFT_SLICE_BYTES=64K WEFT_RING_BYTES=512K", "WEFT_SLICE_BYTES=128K WEFT_RING_BYTES=512K",
            "WEFT_SLICE_BYTES=256K WEFT_RING_BYTES=2M", "WEFT_SLICE_BYTES=512K WEFT_RING_BYTES=2M",
            "NCCL_MAX_NCHANNELS=2", "WEFT_PLAN=all_reduce=direct", "WEFT_PLAN=all_reduce=one_shot",
            "WEFT_PLAN=all_reduce=ring WEFT_PROXY_THREADS=1 WEFT_SLICE_BYTES=512K WEFT_RING_BYTES=2M")


def microseconds(work, turns, repeats=5, group=None):
    """Median over repeats of the time of one turn, on all ranks together. The first is not counted."""
    times = []
    for _ in range(1 + repeats):
        torch.cuda.synchronize()
        dist.barrier(group=group)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(turns):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / turns * 1e6)
    return statistics.median(times[1:])


def all_reduce_times(ctx):
    for name, (size, turns) in SIZES.items():
        x = torch.full((size // 4,), float(ctx.rank), device=ctx.device)
        dist.all_reduce(x)
        expect(f"all_reduce of {name}", x, torch.full(x.shape, ctx.n * (ctx.n - 1) / 2, device=ctx.device))
        x.zero_()
        ctx.values[name] = round(microseconds(lambda x=x: dist.all_reduce(x), turns), 1)
    return ", ".join(f"{name} {value:.0f} us" for name, value in ctx.values.items())


def all_reduce_in_graphs(ctx):
    """Small ones, without what PyTorch does for every call."""
    x = torch.zeros(2048, device=ctx.device)
    dist.all_reduce(x)
    graph, calls = torch.cuda.CUDAGraph(), 20
    with torch.cuda.graph(graph):
        for _ in range(calls):
            dist.all_reduce(x)
    ctx.values["8 KiB, graph"] = round(microseconds(graph.replay, 15) / calls, 1)
    graph.reset()
    return f"8 KiB {ctx.values['8 KiB, graph']:.1f} us"


def all_reduce_waited_for(ctx):
    """Small ones, each waited for before the next is called."""
    x = torch.zeros(2048, device=ctx.device)

    def call():
        dist.all_reduce(x)
        torch.cuda.synchronize()
    ctx.values["8 KiB, waited for"] = round(microseconds(call, 300), 1)
    return f"8 KiB {ctx.values['8 KiB, waited for']:.1f} us"


def all_reduce_sweep(ctx):
    """The same under different settings, with a communicator for each; the defaults come first and last."""
    for number, setting in enumerate(("defaults", *SETTINGS, "defaults again")):
        pairs = [pair.split("=", 1) for pair in setting.split()] if "=" in setting else []
        os.environ.update(pairs)
        group = dist.new_group()
        found = {}
        for name, (size, turns) in SIZES.items():
            x = torch.full((size // 4,), float(ctx.rank), device=ctx.device)
            dist.all_reduce(x, group=group)
            expect(f"all_reduce of {name}, {setting}", x, torch.full(x.shape, ctx.n * (ctx.n - 1) / 2, device=ctx.device))
            x.zero_()
            found[name] = round(microseconds(lambda x=x, group=group: dist.all_reduce(x, group=group), turns, group=group), 1)
        dist.destroy_process_group(group)
        for name, _ in pairs:
            del os.environ[name]
        ctx.values[f"{number}: {setting}"] = found
    return f"{len(ctx.values)} settings, {', '.join(SIZES)}"


def big_model(ctx):
    torch.manual_seed(0)
    width = 2048
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(4)]).to(ctx.device)


def step_time(ctx, net):
    torch.manual_seed(1 + ctx.rank)
    x, y = torch.randn(64, 2048, device=ctx.device), torch.randn(64, 2048, device=ctx.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        mse_loss(net(x), y).backward()
        optimizer.step()
    step()
    ctx.values["step"] = round(microseconds(step, 5) / 1e3, 2)
    return f"{ctx.values['step']:.1f} ms a step, 16.8 million parameters"


def ddp_step(ctx):
    return step_time(ctx, torch.nn.parallel.DistributedDataParallel(big_model(ctx), device_ids=[0]))


def fsdp_step(ctx):
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError as error:
        raise Skip(f"this PyTorch has no FSDP2: {error}") from error
    net = big_model(ctx)
    for layer in net:
        fully_shard(layer)
    return step_time(ctx, fully_shard(net))


ITEMS = {"all_reduce times": all_reduce_times, "all_reduce in graphs": all_reduce_in_graphs,
         "all_reduce, waited for": all_reduce_waited_for, "all_reduce sweep": all_reduce_sweep, "DDP step time": ddp_step,
         "FSDP2 step time": fsdp_step}
