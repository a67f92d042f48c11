# Items of scripts/dropin: process groups, barriers, destruction, CUDA graphs.
import pickle
import socket

import torch
import torch.distributed as dist

from dropin.expectation import expect


def sum_in(ctx, group, ranks, what):
    x = torch.full((1000,), float(ctx.rank), device=ctx.device)
    dist.all_reduce(x, group=group)
    expect(what, x, torch.full((1000,), float(sum(ranks))))


def new_group(ctx):
    n = ctx.n
    groups = [list(range(0, n, 2)), list(range(1, n, 2)), list(range(n))[::-1]]
    made = [(dist.new_group(ranks), ranks) for ranks in groups]
    for group, ranks in made:
        if ctx.rank in ranks:
            sum_in(ctx, group, ranks, f"group {ranks}")
    for group, ranks in made:
        if ctx.rank in ranks:
            dist.destroy_process_group(group)
    sum_in(ctx, None, range(n), "world afterwards")


def split_group(ctx):
    half = ctx.n // 2
    parts = [list(range(half)), list(range(half, ctx.n))]
    own = dist.split_group(split_ranks=parts)
    mine = parts[0] if ctx.rank < half else parts[1]
    sum_in(ctx, own, mine, "split_group")
    sum_in(ctx, None, range(ctx.n), "parent")
    dist.destroy_process_group(own)


def barrier(ctx):
    for _ in range(20):
        dist.barrier()
    dist.barrier(async_op=True).wait()


def objects(ctx):
    got = [None] * ctx.n
    dist.all_gather_object(got, {"rank": ctx.rank, "text": "x" * 1000 * ctx.rank})
    if [one["rank"] for one in got] != list(range(ctx.n)):
        raise AssertionError(f"all_gather_object: {[one['rank'] for one in got]}")
    told = [f"from {ctx.n - 1}" if ctx.rank == ctx.n - 1 else None]
    dist.broadcast_object_list(told, ctx.n - 1, device=ctx.device)
    if told != [f"from {ctx.n - 1}"]:
        raise AssertionError(f"broadcast_object_list: {told}")


def again(ctx):
    """Destroys the default group and makes it anew, at another address: the old store may live on for a while."""
    for _ in range(2):
        address = [None]
        if ctx.rank == 0:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                address = [f"tcp://127.0.0.1:{probe.getsockname()[1]}"]
        dist.broadcast_object_list(address, 0, device=ctx.device)
        dist.destroy_process_group()
        print("destroyed", flush=True)
        dist.init_process_group("nccl" if ctx.device.type == "cuda" else "gloo", init_method=address[0], rank=ctx.rank,
                                world_size=ctx.n)
        print("made anew", flush=True)
        sum_in(ctx, None, range(ctx.n), "after another init")


def graphs(ctx):
    x = torch.zeros(1 << 16, device=ctx.device)
    gathered = torch.zeros(ctx.n << 10, device=ctx.device)
    dist.all_reduce(x.clone())
    dist.all_gather_into_tensor(gathered, x[: 1 << 10].clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = x * 2
        dist.all_reduce(doubled)
        result = doubled + 1
        dist.all_gather_into_tensor(gathered, x[: 1 << 10])
    for turn in range(5):
        x.fill_(float(turn + ctx.rank))
        graph.replay()
        torch.cuda.synchronize()
        expect("replay", result, torch.full(x.shape, 2.0 * (turn * ctx.n + ctx.n * (ctx.n - 1) / 2) + 1))
        expect("gathered in the graph", gathered.view(ctx.n, -1).mean(1), torch.arange(ctx.n) + float(turn))
        sum_in(ctx, None, range(ctx.n), "between replays")  # ordinary calls mix with the graph
    graph.reset()


def torch_cuda_nccl(ctx):
    from torch.cuda import nccl
    x = torch.full((100,), 3.0, device=ctx.device)
    out = torch.empty_like(x)
    nccl.all_reduce([x], [out])
    expect("torch.cuda.nccl.all_reduce", out, torch.full((100,), 3.0))
    nccl.broadcast([x])
    nccl.reduce([x], out)
    expect("torch.cuda.nccl.reduce", out, torch.full((100,), 3.0))
    nccl.all_gather([x], [out])
    nccl.reduce_scatter([x], [out])
    expect("torch.cuda.nccl.reduce_scatter", out, torch.full((100,), 3.0))
    if len(nccl.unique_id()) != 128:
        raise AssertionError(f"unique_id has {len(nccl.unique_id())} bytes")


def flight_recorder(ctx):
    sum_in(ctx, None, range(ctx.n), "before the dump")
    ctx.synchronize()
    dump = pickle.loads(torch._C._distributed_c10d._dump_nccl_trace())
    calls = [entry for entry in dump["entries"] if "all_reduce" in entry["profiling_name"]]
    if not calls:
        raise AssertionError(f"no all_reduce among {len(dump['entries'])} entries")
    return f"{len(dump['entries'])} entries"


ITEMS = {"new_group": new_group, "split_group": split_group, "barrier": barrier, "objects": objects, "destroy and init again": again,
         "torch.cuda.graph": graphs, "torch.cuda.nccl": torch_cuda_nccl, "flight recorder": flight_recorder}
