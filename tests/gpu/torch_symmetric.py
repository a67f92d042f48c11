# PyTorch's symmetric memory with backend NCCL: kernels of one process read and write the tensors of the others. N processes
# share one GPU (start MPS first). Exit 77: this PyTorch has no such backend.
# usage: LD_PRELOAD=build/release/lib/libnccl.so.2 python3 tests/gpu/torch_symmetric.py [processes, default 2]
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

COUNT = 1 << 16


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(1 if "torch_symmetric" in os.environ.get("WEFT_REQUIRE", "").split(",") else 77)


def expect(name, got, want):
    if not torch.equal(got.cpu(), torch.full(got.shape, float(want))):
        raise AssertionError(f"{name}: {got.flatten()[:4].tolist()} instead of {want}")


def work(rank, n):
    import torch.distributed._symmetric_memory as symm

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29521", RANK=str(rank), WORLD_SIZE=str(n))
    torch.cuda.set_device(0)
    device = torch.device("cuda:0")
    dist.init_process_group("nccl", rank=rank, world_size=n, device_id=device)
    dist.all_reduce(torch.ones(1, device=device))  # makes the communicator, also where device_id does not
    symm.set_backend("NCCL")
    done = []

    x = symm.empty(COUNT, device=device)
    handle = symm.rendezvous(x, group=dist.group.WORLD.group_name)
    if (handle.rank, handle.world_size) != (rank, n):
        raise AssertionError(f"the handle is of rank {handle.rank} of {handle.world_size}")
    x.fill_(rank + 1.0)
    torch.cuda.synchronize()
    dist.barrier()
    for peer in range(n):
        expect(f"the tensor of rank {peer}", handle.get_buffer(peer, (COUNT,), torch.float32), peer + 1)
    done.append("peers' tensors")
    torch.cuda.synchronize()
    dist.barrier()

    dist.all_reduce(x)
    expect("all_reduce in symmetric memory", x, n * (n + 1) / 2)
    done.append("all_reduce")
    out = symm.empty(n * COUNT, device=device)
    symm.rendezvous(out, group=dist.group.WORLD.group_name)
    dist.all_gather_into_tensor(out, torch.full((COUNT,), float(rank), device=device))
    for peer in range(n):
        expect(f"all_gather, block {peer}", out.view(n, -1)[peer], peer)
    done.append("all_gather")

    if hasattr(torch.ops.symm_mem, "nccl_put"):  # rank 0 writes into the tensor of the last rank
        x.fill_(100.0 + rank)
        torch.cuda.synchronize()
        dist.barrier()
        if rank == 0:
            torch.ops.symm_mem.nccl_put(x, n - 1)
        torch.cuda.synchronize()
        dist.barrier()
        expect("nccl_put", x, 100 if rank == n - 1 else 100 + rank)
        done.append("nccl_put")
    if rank == 0:
        print(f"symmetric memory with NCCL, {n} processes: {', '.join(done)}", flush=True)
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        import torch.distributed._symmetric_memory as symmetric
        symmetric.set_backend("NCCL")
    except (ImportError, AttributeError, RuntimeError) as error:
        skip(f"PyTorch {torch.__version__} has no symmetric memory with backend NCCL: {error}".splitlines()[0])
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(work, args=(ranks,), nprocs=ranks)
