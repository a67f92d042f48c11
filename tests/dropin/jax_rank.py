# One rank of scripts/dropin with JAX: collectives between processes. Same protocol as ranks.py.
import argparse
import json
import os
import sys


def work(rank, n):
    try:
        import jax
        import jax.numpy as jnp
        from jax.experimental import multihost_utils
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
    except ImportError as error:
        return "skip", f"JAX is not here: {error}"
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(address, num_processes=n, process_id=rank, local_device_ids=[0])
    if jax.default_backend() not in ("gpu", "cuda"):
        return "skip", f"JAX {jax.__version__} has no GPU backend here, only {jax.default_backend()}"
    if len(jax.devices()) != n:
        return "fail", f"JAX sees {len(jax.devices())} devices, not {n}: {jax.devices()}"
    gathered = multihost_utils.process_allgather(jnp.full((3,), float(rank)))
    if [float(row[0]) for row in gathered] != [float(r) for r in range(n)]:
        return "fail", f"process_allgather gives {gathered}"
    mesh = Mesh(jax.devices(), ("i",))
    spread = NamedSharding(mesh, PartitionSpec("i"))
    local = jnp.full((1, 1000), float(rank))
    whole = jax.make_array_from_single_device_arrays((n, 1000), spread, [jax.device_put(local, jax.local_devices()[0])])
    total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, PartitionSpec()))(whole)
    if float(total.addressable_data(0)[0]) != n * (n - 1) / 2:
        return "fail", f"the sum over processes is {total.addressable_data(0)[0]}"
    with open("/proc/self/maps", encoding="utf-8") as file:
        loaded = sorted({line.split()[-1] for line in file if "libnccl" in line})
    jax.distributed.shutdown()
    return "pass", f"JAX {jax.__version__}; NCCL in the process: {', '.join(loaded) or 'linked into the plugin: not this library'}"


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
            state, text = work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        except Exception as error:
            say(options.items[0], "fail", f"{type(error).__name__}: {error}")
            raise
        say(options.items[0], state, text)
        say("destroy", "pass", "")


if __name__ == "__main__":
    main()
