# A profiler trace of DDP steps for `weft overlap`: 2 processes on one GPU (start MPS first), rank 0 writes TRACE.
# usage: tests/gpu/mps.sh python3 perf/overlap/ddp_trace.py LIBRARY TRACE
# then:  weft overlap TRACE hgx-h200      the line "profiler trace" has what the trace shows, "before" what we make of it
import os
import subprocess
import sys

RANKS = 2
LAYERS, WIDTH, BATCH = 12, 4096, 4096


def work(rank, trace):
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, WIDTH, device="cuda")

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    # DDP chooses its buckets in the first steps.
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
                 schedule=schedule(wait=3, warmup=3, active=2),
                 on_trace_ready=lambda p: p.export_chrome_trace(trace) if rank == 0 else None) as profiler:
        for _ in range(8):
            step()
            torch.cuda.synchronize()  # a step ends before the next is marked
            profiler.step()
    dist.destroy_process_group()


def main():
    if len(sys.argv) == 4:  # a rank
        work(int(sys.argv[2]), sys.argv[3])
        return
    if len(sys.argv) != 3:
        sys.exit("usage: ddp_trace.py LIBRARY TRACE")
    library, trace = map(os.path.abspath, sys.argv[1:3])
    environment = dict(os.environ, LD_PRELOAD=library, MASTER_ADDR="127.0.0.1", MASTER_PORT="29541")
    ranks = [subprocess.Popen([sys.executable, __file__, library, str(rank), trace], env=environment)
             for rank in range(RANKS)]
    sys.exit(max(rank.wait() for rank in ranks))


main()
