# Items of scripts/dropin: NCCL's allocator, registered pools, symmetric memory.
import os
import subprocess

import torch
import torch.distributed as dist

from dropin.expectation import Skip, expect


def allocator(ctx):
    """The backend's own, else (PyTorch wants multicast, which a GPU alone does not have) the same made by hand."""
    try:
        return ctx.backend().mem_allocator, "backend.mem_allocator"
    except RuntimeError as error:
        why = str(error).splitlines()[0]
    library = f"{ctx.stem}.pool.rank{ctx.rank}.so"
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl_pool.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    made = torch.cuda.memory.CUDAPluggableAllocator(library, "pool_alloc", "pool_free")
    return made.allocator(), f"by ncclMemAlloc itself, PyTorch says: {why}"


def pool_of(ctx, count, fill):
    made, how = allocator(ctx)
    pool = torch.cuda.MemPool(made)
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.full((1 << 20,), fill, device=ctx.device) for _ in range(count)]
    return pool, tensors, how


def nccl_allocator(ctx):
    pool, (x,), how = pool_of(ctx, 1, float(ctx.rank))
    dist.all_reduce(x)
    expect("all_reduce in ncclMemAlloc memory", x, torch.full(x.shape, ctx.n * (ctx.n - 1) / 2))
    ctx.synchronize()
    del x, pool
    return how


def register(ctx, **options):
    backend = ctx.backend()
    pool, (x, y), how = pool_of(ctx, 2, float(ctx.rank))
    backend.register_mem_pool(pool, **options)
    dist.all_reduce(x)
    expect("all_reduce", x, torch.full(x.shape, ctx.n * (ctx.n - 1) / 2))
    part = y[: y.numel() // ctx.n]
    dist.reduce_scatter_tensor(part.clone(), y)
    dist.all_gather_into_tensor(y, torch.full_like(part, float(ctx.rank)))
    expect("all_gather", y.view(ctx.n, -1).mean(1), torch.arange(ctx.n).float())
    ctx.synchronize()
    dist.barrier()
    backend.deregister_mem_pool(pool)
    del x, y, part, pool
    return how


def register_mem_pool(ctx):
    return register(ctx)


def register_symmetric(ctx):
    try:
        return register(ctx, symm=True)
    except TypeError as error:
        raise Skip(f"this PyTorch's register_mem_pool knows no symm: {error}") from error


def symmetric_memory(ctx):
    """Kernels that communicate need NCCL's device API: it must work, or be refused with a text."""
    try:
        import torch.distributed._symmetric_memory as symm
        symm.set_backend("NCCL")
    except (ImportError, AttributeError, RuntimeError) as error:
        raise Skip(f"this PyTorch has no symmetric memory over NCCL: {error}") from error
    try:
        x = symm.empty(1024, device=ctx.device)
        x.fill_(float(ctx.rank))
        symm.rendezvous(x, group=dist.group.WORLD)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if len(said) < 20:
            raise AssertionError(f"refused without a reason: '{said}'") from error
        return f"refused: {said.split('Last error:')[-1].strip()[:300]}"
    dist.all_reduce(x)
    expect("all_reduce in symmetric memory", x, torch.full(x.shape, ctx.n * (ctx.n - 1) / 2))
    return "works"


ITEMS = {"NCCL mem allocator": nccl_allocator, "register_mem_pool": register_mem_pool, "register_mem_pool symmetric": register_symmetric,
         "symmetric memory": symmetric_memory}
