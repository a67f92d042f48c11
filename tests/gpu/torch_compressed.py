# DDP of a small transformer with compressed gradients: 500 steps, four processes on one GPU, each a host of its own
# (NCCL_HOSTID), data over sockets. Prints the loss of every setting and its ratio to the uncompressed one. Exit 1: a
# ratio is more than 1% off, a setting did not compress, or ranks differ. Start MPS first (tests/gpu/mps.sh).
# usage: LD_PRELOAD=build/release/lib/libnccl.so.2 python3 tests/gpu/torch_compressed.py [steps, default 500]
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, BATCH, LENGTH, WORDS = 4, 16, 64, 256
WIDTH, HEADS, LAYERS = 192, 6, 3
COUNTED = 50  # the loss is the mean over this many last steps
# Setting, and the range of the relative error of one sum that shows that it was used.
SETTINGS = {"off": (0.0, 1e-5), "all_reduce=int8": (1e-3, 2e-2), "all_reduce=int4:feedback": (3e-2, 0.3)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu",
                                                 batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = torch.nn.Linear(WIDTH, WORDS)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, x):
        return self.out(self.layers(self.words(x) + self.places, mask=self.mask, is_causal=True))


class Text:
    """Each word follows the one before by a fixed random table, so the loss has a floor above zero."""

    def __init__(self, rank):
        same = torch.Generator("cuda").manual_seed(1)
        self.chances = torch.softmax(3 * torch.randn(WORDS, WORDS, device="cuda", generator=same), 1)
        self.own = torch.Generator("cuda").manual_seed(100 + rank)

    def batch(self):
        words = [torch.randint(WORDS, (BATCH,), device="cuda", generator=self.own)]
        for _ in range(LENGTH):
            words.append(torch.multinomial(self.chances[words[-1]], 1, generator=self.own)[:, 0])
        words = torch.stack(words, 1)
        return words[:, :-1], words[:, 1:]


def error_of_a_sum(rank):
    """The relative error of one all_reduce. all_gather is not compressed."""
    x = torch.randn(1 << 20, device="cuda", generator=torch.Generator("cuda").manual_seed(rank))
    parts = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(parts, x)
    exact = torch.stack(parts).double().sum(0)
    dist.all_reduce(x)
    return ((x.double() - exact).norm() / exact.norm()).item()


def same_everywhere(model):
    """Whether all ranks have the same parameters, bit for bit."""
    mine = torch.cat([p.detach().flatten() for p in model.parameters()]).view(torch.int32).long()
    weights = torch.arange(1, mine.numel() + 1, device="cuda") % 65521
    check = torch.stack([mine.sum(), (mine * weights).sum()])
    all_checks = [torch.empty_like(check) for _ in range(RANKS)]
    dist.all_gather(all_checks, check)
    return all(torch.equal(other, check) for other in all_checks)


def train(rank, setting, steps, port, result):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_SOCKET_IFNAME="lo",
                      NCCL_HOSTID=f"compressed {rank}", WEFT_COMPRESS=setting)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    net = Model().cuda()
    # Buckets above 1 MiB, from which on arrays are compressed.
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0], bucket_cap_mb=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    text, losses = Text(rank), []
    begin = time.time()
    for _ in range(steps):
        x, y = text.batch()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        warmup.step()
        losses.append(loss.detach())
    loss = torch.stack(losses)
    dist.all_reduce(loss)  # a few numbers: not compressed
    seconds = time.time() - begin
    error, same = error_of_a_sum(rank), same_everywhere(net)
    if rank == 0:
        torch.save({"loss": (loss[-COUNTED:].mean() / RANKS).item(), "first": (loss[0] / RANKS).item(),
                    "error": error, "same": same, "seconds": seconds}, result)
    dist.destroy_process_group()


def main():
    steps, fine, plain = int(sys.argv[1]) if len(sys.argv) > 1 else 500, True, None
    print(f"{'setting':26} {'first loss':>10} {'loss':>8} {'ratio':>7} {'error of a sum':>14} {'seconds':>8}")
    for number, (setting, (least, most)) in enumerate(SETTINGS.items()):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(train, args=(setting, steps, 29541 + number, f"{folder}/result"), nprocs=RANKS)
            found = torch.load(f"{folder}/result")
        plain = plain or found["loss"]
        ratio = found["loss"] / plain
        print(f"{setting:26} {found['first']:10.4f} {found['loss']:8.4f} {ratio:7.4f} {found['error']:14.2e} "
              f"{found['seconds']:8.1f}", flush=True)
        for wrong, text in ((abs(ratio - 1) > 0.01, "the loss is more than 1% off"),
                            (not least <= found["error"] <= most, f"the error of a sum is not in {least} to {most}"),
                            (not found["same"], "ranks have different parameters"),
                            (found["loss"] > 0.9 * found["first"], "the loss does not fall")):
            if wrong:
                print(f"{setting}: {text}", flush=True)
                fine = False
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
