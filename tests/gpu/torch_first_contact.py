# PyTorch on this library: N processes share one GPU (start MPS first), backend nccl, results checked.
# usage: LD_PRELOAD=build/release/lib/libnccl.so.2 python3 tests/gpu/torch_first_contact.py [processes, default 2]
import ctypes
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def expect(name, got, want):
    if not torch.allclose(got.float().cpu(), want.float().cpu(), rtol=1e-3, atol=1e-3):
        raise AssertionError(f"{name}: got {got.flatten()[:4].tolist()}, expected {want.flatten()[:4].tolist()}")


def collectives(rank, n):
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
        for size in (1, 1000, 65537, 3 << 20):
            mine = torch.arange(size, device="cuda").remainder(13).add(rank).to(dtype)
            base = torch.arange(size).remainder(13)
            total = sum(base + r for r in range(n))
            x = mine.clone()
            dist.all_reduce(x)
            expect("all_reduce", x, total)
            gathered = torch.empty(n * size, dtype=dtype, device="cuda")
            dist.all_gather_into_tensor(gathered, mine)
            expect("all_gather", gathered, torch.cat([base + r for r in range(n)]))
            whole = torch.cat([mine] * n)
            part = torch.empty(size, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(part, whole)
            expect("reduce_scatter", part, total)
            x = mine.clone()
            dist.broadcast(x, n - 1)
            expect("broadcast", x, base + n - 1)
            x = mine.clone()
            dist.reduce(x, 0)
            if rank == 0:
                expect("reduce", x, total)
            out = torch.empty(n * size, dtype=dtype, device="cuda")
            dist.all_to_all_single(out, torch.cat([mine + d for d in range(n)]))
            expect("all_to_all", out, torch.cat([base + r + rank for r in range(n)]))
            got = torch.empty_like(mine)
            ops = [dist.P2POp(dist.isend, mine, (rank + 1) % n), dist.P2POp(dist.irecv, got, (rank - 1) % n)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            expect("send/recv", got, base + (rank - 1) % n)
            if rank == 0:
                dist.send(mine, 1)
            elif rank == 1:
                dist.recv(got, 0)
                expect("send, recv", got, base)
    x = torch.full((1000,), float(rank), device="cuda")
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    expect("average", x, torch.full((1000,), (n - 1) / 2))
    dist.barrier()


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()


def ddp_step(rank, n):
    torch.manual_seed(1)
    data, target = torch.randn(n * 16, 64, device="cuda"), torch.randn(n * 16, 8, device="cuda")
    alone, ours = model(), torch.nn.parallel.DistributedDataParallel(model(), device_ids=[0])
    for net, x, y in ((alone, data, target), (ours, data[rank * 16:][:16], target[rank * 16:][:16])):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
    for a, b in zip(alone.parameters(), ours.module.parameters()):
        expect("DDP", b.detach(), a.detach())


def worker(rank, n):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE=str(n))
    torch.cuda.set_device(0)
    library = ctypes.CDLL("libnccl.so.2")
    library.weftVersion.restype = ctypes.c_char_p  # fails unless the library is ours
    if rank == 0:
        print(library.weftVersion().decode(), "| torch sees", torch.cuda.nccl.version())
    dist.init_process_group("nccl", rank=rank, world_size=n)
    collectives(rank, n)
    ddp_step(rank, n)
    big = torch.ones(16 << 20, device="cuda")
    for _ in range(3):
        dist.all_reduce(big)
    torch.cuda.synchronize()
    dist.barrier()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        dist.all_reduce(big)
    end.record()
    torch.cuda.synchronize()
    if rank == 0:
        print(f"{n} processes: all right; all_reduce of 64 MiB in {start.elapsed_time(end) * 100:.0f} us")
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(worker, args=(count,), nprocs=count)
