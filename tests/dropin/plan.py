# The items of scripts/dropin, their order, and the comparison of runs with different libraries.
import concurrent.futures
import glob
import itertools
import json
import math
import os
import statistics
import time

from dropin import launch as ranks
from dropin import programs
from dropin.mps import Mps

FAST_ITEMS = ["version", "log says Weft", "basic collectives", "uneven all_to_all", "AVG and PREMUL_SUM", "coalesced",
              "batched send/recv", "barrier", "objects", "new_group", "DDP with buckets", "DDP static graph, bucket views",
              "DDP comm hooks", "DDP no_sync and join", "FSDP2", "DTensor tensor parallel", "pipeline schedules",
              "pipeline send/recv", "torch.cuda.graph", "torch.cuda.nccl", "flight recorder", "ctypes, as pynccl",
              "DDP step time", "FSDP2 step time"]
MEMORY_ITEMS = ["split_group", "new_group", "NCCL mem allocator", "register_mem_pool", "register_mem_pool symmetric",
                "torch.cuda.graph", "symmetric memory"]
TRAINING = ["DDP with buckets", "FSDP2", "DDP step time", "FSDP2 step time"]
SPEED = "all_reduce times"
SWEEP = "all_reduce sweep"
GRAPHED = "all_reduce in graphs"
WAITED = "all_reduce, waited for"
# The last one uses no network. It shows PyTorch's own time for small messages.
WAYS = STOCK, WEFT, PLUGIN, ONE_HOST = "stock NCCL", "Weft, own hosts", "stock NCCL, our plugin", "Weft, one host"


def own_host(rank):
    return {"NCCL_HOSTID": f"h{rank}"}


def watchdog_ended(processes, run):
    """PyTorch's watchdog must end rank 0, with a dump of the flight recorder."""
    if processes[0].poll() is None:
        return None
    with open(run.log(0), encoding="utf-8", errors="replace") as file:
        text = file.read()
    if "Watchdog caught collective operation timeout" not in text:
        return "fail", f"rank 0 ended with {processes[0].returncode}, not by the watchdog: {run.last_words(0)}"
    dumps = glob.glob(run.stem + ".trace*")
    if not dumps:
        return "fail", "the watchdog ended rank 0, but there is no dump of the flight recorder"
    return "pass", f"rank 0 ended by the watchdog with {processes[0].returncode}, {len(dumps)} dumps"


def launches(options):
    ours = options.library
    recorder = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
    log = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "{stem}.nccl.%p"}
    plugin = {"NCCL_NET_PLUGIN": os.path.join(os.path.dirname(ours), "libnccl-net-weft-socket.so")}
    first = {"init": 120}  # PyTorch's files may have to be read first
    watchdog = {"WEFT_DROPIN_TIMEOUT": "6", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_DUMP_TEMP_FILE": "{stem}.trace",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "{stem}.trace", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "2000", **recorder}
    unblocked = {"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}
    expandable = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

    def together(name, items, environment=None, **more):
        """Jobs that share one GPU. All their thread blocks must fit."""
        return ranks.Launch(name, items, ranks=2, library=ours, together=True, environment={"NCCL_MAX_CTAS": "8", **(environment or {})},
                            **more)

    if options.sweep:
        return [launch for n in (2, 4) for launch in (
            ranks.Launch(f"stock NCCL, {n}", [SPEED], ranks=n, per_rank=own_host, limits=first),
            ranks.Launch(f"sweep, {n}", [SWEEP], ranks=n, library=ours, per_rank=own_host, limit=90, limits=first))]
    if options.own_hosts:
        # Libraries take turns, so that a disturbance of the machine does not affect one of them alone.
        apart = {"per_rank": own_host}
        return [ranks.Launch(f"{who}, {n}, {turn}", [SPEED, WAITED, GRAPHED], ranks=n, limits=first, **how)
                for turn in range(options.own_hosts) for n in (2, 4)
                for who, how in ((STOCK, apart), (WEFT, {"library": ours, **apart}), (PLUGIN, {"environment": plugin, **apart}),
                                 (ONE_HOST, {"library": ours}))]
    return [
        ranks.Launch("torch", FAST_ITEMS, library=ours, environment={**recorder, **log}, limits=first),
        ranks.Launch("stock NCCL", [*TRAINING, SPEED], per_rank=own_host),
        ranks.Launch("Weft, own hosts", ["basic collectives", "DDP step time", SPEED], library=ours, per_rank=own_host),
        ranks.Launch("stock NCCL, our plugin", ["basic collectives", SPEED], per_rank=own_host, environment={**plugin, **log}),
        ranks.Launch("stock NCCL, 2", [SPEED], ranks=2, per_rank=own_host),
        ranks.Launch("Weft, own hosts, 2", [SPEED], ranks=2, library=ours, per_rank=own_host),
        ranks.Launch("stock NCCL, our plugin, 2", [SPEED], ranks=2, per_rank=own_host, environment={**plugin, **log}),
        ranks.Launch("torch eager", MEMORY_ITEMS, library=ours, init="eager"),
        together("torch non-blocking", ["basic collectives", "batched send/recv", "new_group", "DDP with buckets",
                                        "destroy and init again"], unblocked),
        together("torch eager non-blocking", ["split_group", "basic collectives"], {**unblocked, "WEFT_TRACE": "{stem}.timeline"},
                 init="eager"),
        together("torch expandable segments", ["basic collectives", "DDP with buckets", "FSDP2"], expandable),
        together("CuPy", ["all_reduce"], script="cupy_rank.py"),
        together("JAX", ["collectives"], {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, script="jax_rank.py"),
        ranks.Launch("torch abort", ["abort"], ranks=2, library=ours, environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
        ranks.Launch("torch blocking wait", ["blocking wait"], ranks=2, library=ours, environment={"TORCH_NCCL_BLOCKING_WAIT": "1"}),
        ranks.Launch("torch watchdog", ["watchdog"], ranks=2, library=ours, environment=watchdog, died=watchdog_ended, limit=60),
    ]


def compare_times(results, name, slow, fast, least, each, free=()):
    """The speed-up of `fast` over `slow` at every size. With `each`, all sizes but the free ones must reach `least`, else their
    geometric mean."""
    if not results.wanted(name):
        return
    if slow not in results.values or fast not in results.values:
        results.add(name, "skip", f"'{slow}' or '{fast}' was not measured")
        return
    ratios = {size: time / results.values[fast][size] for size, time in results.values[slow].items()}
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    enough = min(ratio for size, ratio in ratios.items() if size not in free) >= least if each else mean >= least
    text = ", ".join(f"{size} {ratio:.2f}" for size, ratio in ratios.items())
    wanted = f"{'each' if each else 'mean'} {least}" + "".join(f", {size} at will" for size in free)
    results.add(name, "pass" if enough else "fail", f"{text}; mean {mean:.2f}, wanted {wanted}",
                values={**ratios, "mean": mean})


def compare_losses(results, item):
    name = f"compare: losses of {item} with stock NCCL"
    pair = [results.values.get(f"{who}: {item}") for who in ("torch", "stock NCCL")]
    if not results.wanted(name):
        return
    if None in pair:
        results.add(name, "skip", "one of the two was not measured")
        return
    ours, theirs = (one["losses"] for one in pair)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    results.add(name, "pass" if worst < 1e-5 else "fail", "bitwise equal" if ours == theirs else f"within {worst:.1e}")


COMPARISONS = [
    ("compare: all_reduce, own hosts, 4 processes", f"stock NCCL: {SPEED}", f"Weft, own hosts: {SPEED}", 2, True),
    # At 8 KiB PyTorch itself takes most of the time of 2 processes.
    ("compare: all_reduce, own hosts, 2 processes", f"stock NCCL, 2: {SPEED}", f"Weft, own hosts, 2: {SPEED}", 2, True, ("8 KiB",)),
    ("compare: our plugin in NCCL, 4 processes", f"stock NCCL: {SPEED}", f"stock NCCL, our plugin: {SPEED}", 1, False),
    ("compare: our plugin in NCCL, 2 processes", f"stock NCCL, 2: {SPEED}", f"stock NCCL, our plugin, 2: {SPEED}", 1, False),
    ("compare: DDP step, one host", "stock NCCL: DDP step time", "torch: DDP step time", 1, True),
    ("compare: FSDP2 step, one host", "stock NCCL: FSDP2 step time", "torch: FSDP2 step time", 1, True),
    ("compare: DDP step, own hosts", "stock NCCL: DDP step time", "Weft, own hosts: DDP step time", 1, True),
]
LOSSES = ("DDP with buckets", "FSDP2")
USED = "compare: NCCL uses our plugin"
TIMELINE = "timeline of WEFT_TRACE"


def plugin_used(options, results):
    if not results.wanted(USED):
        return
    lines = [line for path in glob.glob(os.path.join(options.logs, "stock_NCCL,_our_plugin*.nccl.*"))
             for line in open(path, encoding="utf-8", errors="replace") if "Using network" in line]
    if not lines:
        results.add(USED, "skip", "no log of it")
        return
    wrong = [line for line in lines if "weft-socket" not in line]
    text = (wrong or lines)[0].split("NCCL INFO ")[-1]
    results.add(USED, "fail" if wrong else "pass", text)


def timeline_written(options, results):
    if not results.wanted(TIMELINE):
        return
    files = glob.glob(os.path.join(options.logs, "torch_eager_non-blocking.*.timeline"))
    if not files:
        results.add(TIMELINE, "skip", "no such run, or it wrote no file")
        return
    with open(files[0], encoding="utf-8") as file:
        events = json.load(file)
    calls = [event for event in events if event["name"] == "all_reduce"]
    ranks_seen = {event["pid"] for event in calls}
    text = f"{len(events)} events, {len(calls)} all_reduces of {len(ranks_seen)} ranks"
    results.add(TIMELINE, "pass" if len(ranks_seen) >= 2 else "fail", text)


def print_sweep(results):
    """Prints microseconds, and the speed-up over stock NCCL."""
    for n in (2, 4):
        stock = results.values.get(f"stock NCCL, {n}: {SPEED}", {})
        print(f"{n} processes: stock NCCL " + ", ".join(f"{size} {time:.0f}" for size, time in stock.items()))
        for setting, times in results.values.get(f"sweep, {n}: {SWEEP}", {}).items():
            print(f"  {setting:100}" + "".join(f" {time:8.0f} ({stock.get(size, 0) / time:4.2f})" for size, time in times.items()))


def print_own_hosts(options, results):
    """Prints medians over the rounds, in us. In brackets: the speed-up over stock NCCL, and that of every round."""
    for n in (2, 4):
        times = {who: [{size: time for item in (GRAPHED, WAITED, SPEED)
                        for size, time in results.values.get(f"{who}, {n}, {turn}: {item}", {}).items()}
                       for turn in range(options.own_hosts)] for who in WAYS}
        for who, turns in times.items():
            sizes = dict.fromkeys(size for turn in turns for size in turn)
            print(f"{n} processes, {who}: " + "; ".join(own_hosts_cell(times[STOCK], turns, size) for size in sizes))


def own_hosts_cell(stock, turns, size):
    measured = [(slow[size], fast[size]) for slow, fast in zip(stock, turns) if size in slow and size in fast]
    if not measured:
        return f"{size} not measured"
    slow, fast = (statistics.median(column) for column in zip(*measured))
    each = " ".join(f"{a / b:.2f}" for a, b in measured)
    return f"{size} {fast:.0f}" + (f" ({slow / fast:.2f}: {each})" if turns is not stock else "")


def names(options):
    found = [name for launch in launches(options) for name in launch.names()]
    if options.sweep or options.own_hosts:
        return found
    found += programs.names(options) + [TIMELINE, USED] + [comparison[0] for comparison in COMPARISONS]
    return found + [f"compare: losses of {item} with stock NCCL" for item in LOSSES]


def follow_all(group, together, options, results, mps, runs):
    """Follows launches one after the other, or all at once."""
    if not together:
        for launch in group:
            ranks.follow(launch, options, results, mps, runs[launch])
        return
    mps.hold()
    with concurrent.futures.ThreadPoolExecutor(len(group)) as pool:
        for done in [pool.submit(ranks.follow, launch, options, results, mps, runs[launch]) for launch in group]:
            done.result()
    mps.let_go()


def run(options, results):
    mps = Mps()
    mps.start()
    try:
        wanted = [launch for launch in launches(options) if ranks.wanted_items(launch, results)[2]]
        runs = {launch: ranks.Run(launch, ranks.wanted_items(launch, results)[0], options, mps) for launch in wanted}
        deadline = time.monotonic() + 90
        for run in runs.values():
            run.wait_until_ready(deadline)  # imports would disturb the measurement
        for together, group in itertools.groupby(wanted, key=lambda launch: launch.together):
            follow_all(list(group), together, options, results, mps, runs)
        for run in runs.values():
            run.end(0)  # ranks without time left still wait
        if options.sweep:
            print_sweep(results)
            return
        if options.own_hosts:
            print_own_hosts(options, results)
            return
        timeline_written(options, results)
        plugin_used(options, results)
        for item in LOSSES:
            compare_losses(results, item)
        for comparison in COMPARISONS:
            compare_times(results, *comparison)
        programs.mpi_program(options, results, mps)
        programs.nccl_tests(options, results, mps)
    finally:
        mps.stop()
