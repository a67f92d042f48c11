# Several process groups in flight at once: the world and two pair groups per rank, one asynchronous all_reduce per
# group and round, waited for every 20 operations. N processes share one GPU (start MPS first).
# usage: LD_PRELOAD=build/release/lib/libnccl.so.2 python3 tests/gpu/torch_several_groups.py [rounds, default 300]
import os
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 4
PAIRS = [[0, 1], [2, 3], [0, 2], [1, 3]]


def work(rank, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    groups = [(dist.group.WORLD, list(range(RANKS)))]
    for pair in PAIRS:
        group = dist.new_group(pair)
        if rank in pair:
            groups.append((group, pair))
    begin = time.time()
    sizes = random.Random(7)
    pending = []
    for _ in range(rounds):
        for group, members in groups:
            x = torch.full((sizes.randint(1, 1_000_000),), float(rank + 1), device="cuda")
            pending.append((dist.all_reduce(x, group=group, async_op=True), x, sum(r + 1 for r in members)))
            if len(pending) < 20:
                continue
            for handle, result, total in pending:
                handle.wait()
                if not bool((result == total).all()):
                    raise AssertionError(f"rank {rank}: {result[:4].tolist()} instead of {total}")
            pending.clear()
    torch.cuda.synchronize()
    if rank == 0:
        print(f"{rounds} rounds of {len(groups)} groups in {time.time() - begin:.2f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(int(sys.argv[1]) if len(sys.argv) > 1 else 300,), nprocs=RANKS)
