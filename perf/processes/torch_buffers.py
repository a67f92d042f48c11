# PyTorch with plain buffers, 4 processes on one GPU (start MPS first): fresh tensors in every call against a registered pool,
# DDP and FSDP2 steps, and how soon empty_cache() gives memory back. Each row of settings runs in processes of its own.
# usage: tests/gpu/mps.sh python3 perf/processes/torch_buffers.py LIBRARY [calls, default 200]
import os
import statistics
import subprocess
import sys
import time

RANKS = 4
BYTES = 64 << 20
SETTINGS = (("scratch", {"WEFT_SHARE_BUFFERS": "0"}), ("shared", {}),
            ("scratch, expandable segments", {"WEFT_SHARE_BUFFERS": "0", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
            ("shared, expandable segments", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))


def median_us(dist, torch, work, turns, repeats=5):
    times = []
    for _ in range(repeats + 1):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(turns):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / turns * 1e6)
    return statistics.median(times[1:])


def fresh(torch, dist, kept):
    """A call with tensors that are new, and of which some stay for a while, so that addresses change."""
    x = torch.ones(BYTES // 4, device="cuda")
    dist.all_reduce(x)
    kept.append(x)
    if len(kept) > 3:
        kept.pop(0)
    return x


def steps(torch, dist, rank, sharded):
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    if sharded:
        from torch.distributed.fsdp import fully_shard
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(256, 2048, device="cuda") + rank

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(20):
        step()
    torch.cuda.synchronize()
    time.sleep(0.1)
    return median_us(dist, torch, step, 20)


def given_back(torch, dist):
    """Percent of the memory of all ranks that is free a second after empty_cache()."""
    torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    time.sleep(1.5)
    before = torch.cuda.mem_get_info()[0]
    dist.barrier()
    torch.cuda.synchronize()
    tensors = [torch.ones(BYTES, device="cuda") for _ in range(4)]
    for _ in range(10):
        for x in tensors:
            dist.all_reduce(x)
        torch.cuda.synchronize()
        time.sleep(0.01)
    dist.barrier()
    torch.cuda.synchronize()
    during = torch.cuda.mem_get_info()[0]
    del tensors, x
    torch.cuda.empty_cache()
    dist.barrier()
    torch.cuda.synchronize()
    time.sleep(1)
    return 100 * (torch.cuda.mem_get_info()[0] - during) / (before - during)


def work(rank, calls, port):
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS, device_id=torch.device("cuda", 0))
    kept = []
    for _ in range(20):
        x = fresh(torch, dist, kept)
        torch.cuda.synchronize()
        assert bool((x == RANKS).all()), "wrong sum"
    time.sleep(0.2)
    result = {"fresh": median_us(dist, torch, lambda: fresh(torch, dist, kept), calls)}
    assert bool((fresh(torch, dist, kept) == RANKS).all()), "wrong sum"
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool()  # (the backend's own allocator is refused where ranks share a GPU)
    with torch.cuda.use_mem_pool(pool):
        registered = torch.ones(BYTES // 4, device="cuda")
    backend.register_mem_pool(pool)
    for _ in range(5):
        dist.all_reduce(registered)
    torch.cuda.synchronize()
    time.sleep(0.1)

    def again():
        registered.fill_(1)
        dist.all_reduce(registered)

    result["registered"] = median_us(dist, torch, again, calls)
    backend.deregister_mem_pool(pool)
    kept.clear()
    result["ddp"] = steps(torch, dist, rank, False)
    result["fsdp2"] = steps(torch, dist, rank, True)
    result["back"] = given_back(torch, dist)
    if rank == 0:
        print("{:>10.0f} {:>10.0f} {:>7.2f} {:>10.0f} {:>10.0f} {:>8.0f}%".format(
            result["fresh"], result["registered"], result["registered"] / result["fresh"], result["ddp"], result["fsdp2"],
            result["back"]), flush=True)
    dist.destroy_process_group()


def main():
    if sys.argv[1] == "--rank":
        return work(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    calls = sys.argv[2] if len(sys.argv) > 2 else "200"
    print(f"# {RANKS} processes, all_reduce of {BYTES >> 20} MiB; us per call or step; ratio: registered over fresh")
    print(f"# {'':<30} {'fresh':>10} {'registered':>10} {'ratio':>7} {'ddp':>10} {'fsdp2':>10} {'back':>9}")
    failed = 0
    for number, (name, more) in enumerate(SETTINGS):
        print(f"  {name:<30} ", end="", flush=True)
        environment = {**os.environ, "LD_PRELOAD": sys.argv[1], "NCCL_SOCKET_IFNAME": "lo", **more}
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), calls, str(29530 + number)], env=environment)
                 for rank in range(RANKS)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            print("failed:", codes)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
