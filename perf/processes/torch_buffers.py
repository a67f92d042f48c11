# PyTorch with plain buffers, 4 processes on one GPU (start MPS first): fresh tensors in every call against a registered pool,
# DDP and FSDP2 steps, and how soon empty_cache() gives memory back. Each row of settings runs in processes of its own. The
# settings take turns, because steps that the CPUs limit vary by several percent from run to run.
# usage: tests/gpu/mps.sh python3 perf/processes/torch_buffers.py LIBRARY [calls, default 200] [turns, default 3]
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
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
    cpu, begin = time.process_time(), time.perf_counter()
    us = median_us(dist, torch, step, 20)
    return us, (time.process_time() - cpu) / (time.perf_counter() - begin)


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
    result["ddp"], result["ddp_cpus"] = steps(torch, dist, rank, False)
    result["fsdp2"], result["fsdp2_cpus"] = steps(torch, dist, rank, True)
    result["back"] = given_back(torch, dist)
    if rank == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def run(name, more, number, calls):
    """One turn of one setting: its times, and how many buffers of calls were used where they lie; None: it failed."""
    with tempfile.TemporaryDirectory() as logs:
        environment = {**os.environ, "LD_PRELOAD": sys.argv[1], "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "INFO",
                       "NCCL_DEBUG_SUBSYS": "REG", "NCCL_DEBUG_FILE": logs + "/%p", **more}
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), calls, str(29530 + number)], env=environment,
                                  stdout=subprocess.PIPE if rank == 0 else None, text=True) for rank in range(RANKS)]
        output = ranks[0].communicate()[0]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            print(f"# {name}: failed: {codes}", flush=True)
            return None
        result = json.loads(output.splitlines()[-1])
        said = "".join(open(os.path.join(logs, file)).read() for file in os.listdir(logs))
    counts = re.findall(r"(\d+) buffers of calls were used where they lie, (\d+) were private", said)
    placed, private = (sum(int(count[i]) for count in counts) for i in (0, 1))
    result["placed"] = 100 * placed / max(1, placed + private)
    return result


def show(name, results):
    def median(key):
        return statistics.median(result[key] for result in results)

    fsdp2 = [result["fsdp2"] for result in results]
    print("  {:<30} {:>10.0f} {:>10.0f} {:>7.2f} {:>10.0f} {:>10.0f} {:>6.0f}..{:<6.0f} {:>6.1f} {:>8.0f}% {:>7.0f}%".format(
        name, median("fresh"), median("registered"), median("registered") / median("fresh"), median("ddp"), median("fsdp2"),
        min(fsdp2), max(fsdp2), median("fsdp2_cpus"), median("back"), median("placed")), flush=True)


def main():
    if sys.argv[1] == "--rank":
        return work(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    calls = sys.argv[2] if len(sys.argv) > 2 else "200"
    turns = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    results = {name: [] for name, _ in SETTINGS}
    failed = 0
    for turn in range(turns):
        order = SETTINGS if turn % 2 == 0 else SETTINGS[::-1]
        for number, (name, more) in enumerate(order):
            result = run(name, more, turn * len(SETTINGS) + number, calls)
            failed |= result is None
            if result is not None:
                results[name].append(result)
    print(f"# {RANKS} processes, all_reduce of {BYTES >> 20} MiB; us per call or step, medians of {turns} turns; ratio: registered to")
    print("# fresh; cores: of a process in FSDP2 steps; placed: buffers of calls that were used where they lie")
    print(f"# {'':<30} {'fresh':>10} {'registered':>10} {'ratio':>7} {'ddp':>10} {'fsdp2':>10} {'least..most':>14} {'cores':>6} "
          f"{'back':>9} {'placed':>8}")
    for name, _ in SETTINGS:
        if results[name]:
            show(name, results[name])
    return failed


if __name__ == "__main__":
    sys.exit(main())
