# Items of scripts/dropin: torch.distributed's collectives and messages, with checked results.
import ctypes
import glob

import torch
import torch.distributed as dist

from dropin.expectation import expect


def version(ctx):
    library = ctypes.CDLL("libnccl.so.2")
    library.weftVersion.restype = ctypes.c_char_p  # fails unless the library is ours
    seen = torch.cuda.nccl.version()
    if tuple(seen) != (2, 28, 9):
        raise AssertionError(f"torch.cuda.nccl.version() is {seen}")
    return f"torch.cuda.nccl.version() {seen}, {library.weftVersion().decode()}"


def log_says_weft(ctx):
    files = glob.glob(ctx.stem + ".nccl.*")
    if not files:
        raise AssertionError("NCCL_DEBUG_FILE was not written")
    with open(files[0], encoding="utf-8") as file:
        text = file.read()
    banner = next((line for line in text.splitlines() if "Weft" in line), None)
    if banner is None:
        raise AssertionError(f"no line of {files[0]} names Weft")
    return banner.split("NCCL INFO ")[-1]


def basics(ctx):
    n, rank = ctx.n, ctx.rank
    cases = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
        for size in (1, 1000, 65537, 1 << 20):
            base = torch.arange(size, device=ctx.device).remainder(13)
            mine, total = (base + rank).to(dtype), (base * n + n * (n - 1) // 2)
            x = mine.clone()
            dist.all_reduce(x)
            expect("all_reduce", x, total)
            gathered = torch.empty(n * size, dtype=dtype, device=ctx.device)
            dist.all_gather_into_tensor(gathered, mine)
            expect("all_gather_into_tensor", gathered, torch.cat([base + r for r in range(n)]))
            part = torch.empty(size, dtype=dtype, device=ctx.device)
            dist.reduce_scatter_tensor(part, torch.cat([mine] * n))
            expect("reduce_scatter_tensor", part, total)
            x = mine.clone()
            dist.broadcast(x, n - 1)
            expect("broadcast", x, base + n - 1)
            x = mine.clone()
            dist.reduce(x, 0)
            if rank == 0:
                expect("reduce", x, total)
            out = torch.empty(n * size, dtype=dtype, device=ctx.device)
            dist.all_to_all_single(out, torch.cat([mine + d for d in range(n)]))
            expect("all_to_all_single", out, torch.cat([base + r + rank for r in range(n)]))
            cases += 6
    lists = [torch.empty(7, device=ctx.device) for _ in range(n)]
    dist.all_gather(lists, torch.full((7,), float(rank), device=ctx.device))
    expect("all_gather", torch.stack(lists).mean(1), torch.arange(n).float())
    into = [torch.empty(3, device=ctx.device) for _ in range(n)] if rank == 0 else None
    dist.gather(torch.full((3,), float(rank), device=ctx.device), into)
    if rank == 0:
        expect("gather", torch.stack(into).mean(1), torch.arange(n).float())
    got = torch.empty(3, device=ctx.device)
    dist.scatter(got, [torch.full((3,), r + 5.0, device=ctx.device) for r in range(n)] if rank == 0 else None)
    expect("scatter", got, torch.full((3,), rank + 5.0))
    return f"{cases + 3} calls right"


def uneven_all_to_all(ctx):
    for scale in (1, 1000, 100000):
        sends = [scale * (ctx.rank + d) % (3 * scale + 1) for d in range(ctx.n)]
        receives = [scale * (s + ctx.rank) % (3 * scale + 1) for s in range(ctx.n)]
        source = torch.cat([torch.full((count,), ctx.rank * 10.0 + d, device=ctx.device) for d, count in enumerate(sends)])
        got = torch.empty(sum(receives), device=ctx.device)
        dist.all_to_all_single(got, source, receives, sends)
        expect("all_to_all_single", got, torch.cat([torch.full((count,), s * 10.0 + ctx.rank) for s, count in enumerate(receives)]))
    outs = [torch.empty(3, device=ctx.device) for _ in range(ctx.n)]
    dist.all_to_all(outs, [torch.full((3,), ctx.rank * 10.0 + d, device=ctx.device) for d in range(ctx.n)])
    expect("all_to_all", torch.stack(outs).mean(1), torch.arange(ctx.n) * 10.0 + ctx.rank)
    return None


def average_and_premul_sum(ctx):
    n = ctx.n
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.full((1000,), float(ctx.rank), device=ctx.device, dtype=dtype)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        expect("AVG", x, torch.full((1000,), (n - 1) / 2))
        factors = [torch.full((1,), 0.25, device=ctx.device, dtype=dtype)]
        if dtype != torch.bfloat16:  # PyTorch passes a bfloat16 factor as if it were a float: wrong with every library
            factors.append(0.5)
        for factor in factors:
            x = torch.full((1000,), float(ctx.rank), device=ctx.device, dtype=dtype)
            try:
                dist.all_reduce(x, op=dist._make_nccl_premul_sum(factor))
            except RuntimeError as error:
                if dtype == torch.bfloat16 and "scalar type" in str(error):
                    continue  # it does not take a tensor there either
                raise
            expect(f"PREMUL_SUM of {dtype} by {factor}", x, torch.full((1000,), float(factor) * n * (n - 1) / 2))
        part = torch.empty(10, device=ctx.device, dtype=dtype)
        dist.reduce_scatter_tensor(part, torch.full((10 * n,), float(ctx.rank), device=ctx.device, dtype=dtype), op=dist.ReduceOp.AVG)
        expect("AVG of reduce_scatter", part, torch.full((10,), (n - 1) / 2))
    for op, want in ((dist.ReduceOp.MAX, n), (dist.ReduceOp.MIN, 1)):
        x = torch.full((5,), ctx.rank + 1, device=ctx.device)
        dist.all_reduce(x, op=op)
        expect(str(op), x, torch.full((5,), want))
    return None


def coalesced(ctx):
    with dist._coalescing_manager(async_ops=True) as pending:
        xs = [torch.full((size,), float(ctx.rank), device=ctx.device) for size in (1, 1000, 300000)]
        for x in xs:
            dist.all_reduce(x)
    pending.wait()
    for x in xs:
        expect("coalesced all_reduce", x, torch.full(x.shape, ctx.n * (ctx.n - 1) / 2))
    outs = [torch.empty(ctx.n * size, device=ctx.device) for size in (10, 5000)]
    with dist._coalescing_manager(device=ctx.device, async_ops=True) as pending:
        for out in outs:
            dist.all_gather_into_tensor(out, torch.full((out.numel() // ctx.n,), float(ctx.rank), device=ctx.device))
    pending.wait()
    for out in outs:
        expect("coalesced all_gather", out.view(ctx.n, -1).mean(1), torch.arange(ctx.n).float())


def batched_messages(ctx):
    n, rank = ctx.n, ctx.rank
    for size in (1, 4096, 1 << 20):
        sent = [torch.full((size,), rank * 100.0 + peer, device=ctx.device) for peer in range(n)]
        got = [torch.empty(size, device=ctx.device) for _ in range(n)]
        ops = [dist.P2POp(dist.isend, sent[p], p) for p in range(n) if p != rank]
        ops += [dist.P2POp(dist.irecv, got[p], p) for p in range(n) if p != rank]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for peer in range(n):
            if peer != rank:
                expect("batch_isend_irecv", got[peer], torch.full((size,), peer * 100.0 + rank))
    x = torch.full((1000,), float(rank), device=ctx.device)
    for first in range(0, n - 1):  # a message goes round, one blocking call at a time
        if rank == first:
            dist.send(x, first + 1)
        elif rank == first + 1:
            dist.recv(x, first)
    expect("send, recv", x, torch.zeros(1000))


ITEMS = {"version": version, "log says Weft": log_says_weft, "basic collectives": basics,
         "uneven all_to_all": uneven_all_to_all, "AVG and PREMUL_SUM": average_and_premul_sum, "coalesced": coalesced,
         "batched send/recv": batched_messages}
