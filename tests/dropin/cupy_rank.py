# One rank of scripts/dropin with CuPy: cupy.cuda.nccl. Same protocol as ranks.py. Writes a line into its file and exits.
import argparse
import json
import os
import pickle
import sys
import time


def work(rank, n, stem):
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError as error:
        return "skip", f"CuPy is not here or has no NCCL: {error}"
    if not getattr(nccl, "available", True):
        return "skip", "this CuPy was built without NCCL"
    path = stem + ".id"
    if rank == 0:
        with open(path + ".new", "wb") as file:
            pickle.dump(nccl.get_unique_id(), file)  # a tuple or bytes, depending on the version
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as file:
        unique = pickle.load(file)
    comm = nccl.NcclCommunicator(n, unique, rank)
    x, y = cupy.full(1000, float(rank), dtype=cupy.float32), cupy.zeros(1000, dtype=cupy.float32)
    comm.allReduce(x.data.ptr, y.data.ptr, 1000, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, cupy.cuda.Stream.null.ptr)
    cupy.cuda.Stream.null.synchronize()
    if not bool((y == n * (n - 1) / 2).all()):
        return "fail", f"allReduce gives {y[0]}"
    comm.destroy()
    return "pass", f"CuPy {cupy.__version__}, NCCL {nccl.get_version()}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--init")
    parser.add_argument("--out", required=True)
    parser.add_argument("items", nargs="*")
    options = parser.parse_args()
    with open(options.out + ".ready", "w", encoding="utf-8"):
        pass
    port = sys.stdin.readline()  # waits for its turn
    if not port:
        return
    os.environ["MASTER_PORT"] = port.strip()
    with open(options.out, "w", encoding="utf-8") as out:
        def say(item, state, text):
            out.write(json.dumps({"item": item, "state": state, "text": text, "values": {}}) + "\n")
            out.flush()
        say("init", "pass", "")
        try:
            state, text = work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["WEFT_DROPIN_STEM"])
        except Exception as error:
            say(options.items[0], "fail", f"{type(error).__name__}: {error}")
            raise
        say(options.items[0], state, text)
        say("destroy", "pass", "")


if __name__ == "__main__":
    main()
