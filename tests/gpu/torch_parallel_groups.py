# Data, tensor and pipeline parallel groups at once, beside a stream of matrix products: 4 processes share one GPU (start
# MPS first). Tensor pairs {0,1} {2,3}, pipeline pairs {0,2} {1,3},
# data parallel all four.
# usage: LD_PRELOAD=build/release/lib/libnccl.so.2 python3 tests/gpu/torch_parallel_groups.py [rounds, default 50]
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 4
WIDTH = 1024


def work(rank, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29519", RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    tensor = [dist.new_group(pair) for pair in ([0, 1], [2, 3])][rank // 2]
    pipeline = [dist.new_group(pair) for pair in ([0, 2], [1, 3])][rank % 2]
    model = torch.nn.Linear(WIDTH, WIDTH, device="cuda")
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    background = torch.cuda.Stream()
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    begin = time.time()
    products = 0
    for step in range(rounds):
        with torch.cuda.stream(background):
            for _ in range(4):
                a @ a
                products += 1
        x = torch.full((64, WIDTH), 1.0 + rank + step, device="cuda")
        loss = ddp(x).square().mean()
        partial = torch.full((256 * 1024,), float(rank + 1), device="cuda")
        handle = dist.all_reduce(partial, group=tensor, async_op=True)
        peer = (rank + 2) % RANKS
        sent, received = torch.full((65536,), float(rank + step), device="cuda"), torch.empty(65536, device="cuda")
        exchange = [dist.P2POp(dist.isend, sent, peer, pipeline), dist.P2POp(dist.irecv, received, peer, pipeline)]
        transfers = dist.batch_isend_irecv(exchange if rank < 2 else exchange[::-1])
        loss.backward()
        handle.wait()
        for transfer in transfers:
            transfer.wait()
        expected = 3.0 if rank < 2 else 7.0
        assert bool((partial == expected).all()), f"rank {rank}: tensor parallel sum {partial[0].item()}"
        assert bool((received == float(peer + step)).all()), f"rank {rank}: received {received[0].item()}"
        gradient = model.weight.grad.clone()
        lowest, highest = gradient.clone(), gradient.clone()
        dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX)
        assert torch.equal(lowest, highest), f"rank {rank}: gradients differ"
        model.zero_grad()
    torch.cuda.synchronize()
    if rank == 0:
        print(f"{rounds} steps of data, tensor and pipeline groups beside {products} products: {time.time() - begin:.2f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(int(sys.argv[1]) if len(sys.argv) > 1 else 50,), nprocs=RANKS)
