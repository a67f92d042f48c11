# One rank of a launch of scripts/dropin. Joins the process group, runs items in order, writes each result to a file.
import argparse
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dropin.expectation import Skip, expect  # noqa: E402

MODULES = ("torch_collectives", "torch_training", "torch_parallel", "torch_groups", "torch_memory", "torch_faults",
           "torch_speed", "ctypes_client")
HEAVY = ("DDP", "FSDP", "DTensor", "pipeline schedules")


class Context:
    """The context of an item. `values` are measurements, for comparisons between launches."""

    def __init__(self, device):
        self.rank, self.n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = device
        self.stem = os.environ.get("WEFT_DROPIN_STEM", "/tmp/weft-dropin")
        self.values = {}

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def backend(self):
        return dist.group.WORLD._get_backend(self.device)

    def share(self, name, value=None):
        """Sends bytes through the store, from the rank that has them to all ranks."""
        store = dist.distributed_c10d._get_default_store()
        if value is not None:
            store.set(name, value)
        return store.get(name)


def join(kind, device, backend):
    options = {"timeout": timedelta(seconds=float(os.environ.get("WEFT_DROPIN_TIMEOUT", "120")))}
    if kind == "eager":
        options["device_id"] = device
    dist.init_process_group(backend, **options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--init", choices=("lazy", "eager"), default="lazy")
    parser.add_argument("--out", required=True)
    parser.add_argument("--backend", default=os.environ.get("WEFT_DROPIN_BACKEND", "nccl"))
    parser.add_argument("items", nargs="*")
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)  # prints the stacks of a hung rank; see Run.ask_where()
    device = torch.device("cuda:0" if options.backend == "nccl" else "cpu")
    items = {}
    if device.type == "cuda" and any(word in item for item in options.items for word in HEAVY):
        for name in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.distributed.pipelining",
                     "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook"):
            try:
                importlib.import_module(name)  # otherwise the first item that needs it seems slow
            except ImportError:
                pass
    for name in MODULES:
        items.update(importlib.import_module(f"dropin.{name}").ITEMS)
    with open(options.out + ".ready", "w", encoding="utf-8"):
        pass
    port = sys.stdin.readline()  # waits for its turn
    if not port:
        return
    os.environ["MASTER_PORT"] = port.strip()
    context = Context(device)
    with open(options.out, "w", encoding="utf-8") as out:

        def say(item, state, text=""):
            out.write(json.dumps({"item": item, "state": state, "text": text or "", "values": context.values}) + "\n")
            out.flush()

        def attempt(item, work):
            context.values = {}
            print(f"--- {item}", flush=True)
            begin = time.monotonic()
            try:
                text = work()
                context.synchronize()
                say(item, "pass", text)
            except Skip as reason:
                say(item, "skip", str(reason))
            except BaseException as error:  # every error must be reported
                traceback.print_exc()
                say(item, "fail", f"{type(error).__name__}: {error}")
                raise
            print(f"--- {item} took {time.monotonic() - begin:.2f} s", flush=True)

        def begin():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            join(options.init, device, options.backend)
            hello = torch.ones(1, device=device)
            dist.all_reduce(hello)
            expect("the first all_reduce", hello, [float(context.n)])

        attempt("init", begin)
        for name in options.items:
            attempt(name, lambda: items[name](context))
        if dist.is_initialized():
            attempt("destroy", dist.destroy_process_group)
        else:
            say("destroy", "pass", "by the item before")


if __name__ == "__main__":
    main()
