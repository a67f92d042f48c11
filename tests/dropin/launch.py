# Starts the ranks of a launch, follows their items, and ends ranks that hang.
import json
import os
import signal
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
INIT, DESTROY = "init", "destroy"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Launch:
    """Ranks as processes. They run a list of items in order, each item on all ranks, and write results to a file per
    rank. An item that fails or hangs ends the processes. The items after it run in new processes."""

    def __init__(self, name, items, ranks=4, environment=None, per_rank=None, library=None, init="lazy", limits=None, died=None,
                 script="ranks.py", limit=45, together=False):
        self.together = together  # runs beside other launches: measures nothing, and no rank dies on purpose
        self.name, self.items, self.ranks, self.script = name, items, ranks, script
        self.environment, self.per_rank = environment or {}, per_rank or (lambda rank: {})
        self.library, self.init, self.limits, self.limit = library, init, limits or {}, limit
        self.died = died  # called with (processes, log) if the item should end a rank; returns None or (state, text)

    def label(self, item):
        return f"{self.name}: {item}"

    def names(self):
        begin, end = self.bookends()
        return [self.label(item) for item in [*begin, *self.items, *end]]

    def bookends(self):
        """Init and destruction of PyTorch's ranks get a line each, too."""
        if self.script != "ranks.py":
            return [], []
        return [INIT], [] if self.died else [DESTROY]


def share_of_cores(rank, ranks):
    """The cores of a rank, distributed as by launchers that bind ranks."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[rank * len(cores) // ranks:(rank + 1) * len(cores) // ranks] or [cores[rank % len(cores)]]


class Run:
    """One start of a launch's processes. They import their modules, which takes longest, and wait for go()."""

    def __init__(self, launch, items, options, mps, attempt=0):
        self.launch, self.items = launch, items
        self.stem = os.path.join(options.logs, f"{launch.name.replace(' ', '_').replace('/', '_')}.{attempt}")
        self.processes, self.files, self.seen = [], [], []
        for rank in range(launch.ranks):
            environment = {**os.environ, **mps.environment(), "PYTHONUNBUFFERED": "1", "RANK": str(rank), "LOCAL_RANK": "0",
                           "WORLD_SIZE": str(launch.ranks), "MASTER_ADDR": "127.0.0.1",
                           "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "GLOO_SOCKET_IFNAME": "lo",
                           "PYTHONDONTWRITEBYTECODE": "1", "WEFT_DROPIN_STEM": self.stem, "WEFT_DROPIN_LIBRARY": options.library,
                           **launch.environment, **launch.per_rank(rank)}
            environment = {name: value.replace("{stem}", self.stem) for name, value in environment.items()}
            if launch.library:
                environment["LD_PRELOAD"] = launch.library
            said = f"{self.stem}.rank{rank}.jsonl"
            command = [options.python, os.path.join(HERE, launch.script), "--init", launch.init, "--out", said, *items]
            if options.bind:
                command = ["taskset", "-c", ",".join(map(str, share_of_cores(rank, launch.ranks))), *command]
            with open(self.log(rank), "wb") as log:
                self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT,
                                                       stdin=subprocess.PIPE, start_new_session=True))
            self.files.append(said)
            self.seen.append({})

    def wait_until_ready(self, deadline):
        while time.monotonic() < deadline:
            if all(os.path.exists(file + ".ready") or process.poll() is not None
                   for file, process in zip(self.files, self.processes)):
                return
            time.sleep(0.05)

    def go(self):
        port = free_port()
        for process in self.processes:
            try:
                process.stdin.write(f"{port}\n".encode())
                process.stdin.close()
            except BrokenPipeError:
                pass  # the process has ended; its log says why

    def log(self, rank):
        return f"{self.stem}.rank{rank}.log"

    def read(self):
        for rank, path in enumerate(self.files):
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                for line in file:
                    if line.endswith("\n"):
                        said = json.loads(line)
                        self.seen[rank][said["item"]] = said

    def last_words(self, rank):
        """The last telling line of a rank's log."""
        with open(self.log(rank), encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        telling = [line for line in lines if "Error" in line or "WARN" in line or "terminate" in line]
        return (telling or lines or ["its log is empty"])[-1][:250]

    def verdict(self, item, deadline):
        """None while the item runs, then its state, text and values."""
        self.read()
        said = [seen.get(item) for seen in self.seen]
        for rank, one in enumerate(said):
            if one and one["state"] == "fail":
                return "fail", f"rank {rank}: {one['text']}", {}
        if all(said):
            skipped = next((one for one in said if one["state"] == "skip"), None)
            return ("skip", skipped["text"], {}) if skipped else ("pass", said[0]["text"], said[0]["values"])
        if self.launch.died and item == self.items[-1]:
            verdict = self.launch.died(self.processes, self)
            if verdict is not None:
                return (*verdict, {})
        else:
            for rank, process in enumerate(self.processes):
                code = process.poll()
                if code is not None and not said[rank]:
                    self.read()
                    if self.seen[rank].get(item):
                        return None
                    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
                    return "fail", f"rank {rank} ended with {how}: {self.last_words(rank)}", {}
        if time.monotonic() > deadline:
            late = [rank for rank, one in enumerate(said) if not one]
            return "fail", f"timed out; still in it: ranks {late}; rank {late[0]}: {self.ask_where(late)}", {}
        return None

    def ask_where(self, late):
        """Ranks that hang write their stacks to their logs. Returns the innermost call of the first rank's main thread."""
        if self.launch.script != "ranks.py":
            return self.last_words(late[0])
        for rank in late:
            if self.processes[rank].poll() is None:
                self.processes[rank].send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        with open(self.log(late[0]), encoding="utf-8", errors="replace") as file:
            main = file.read().rpartition("Current thread")[2]  # the main thread handles the signal
        calls = [line.strip() for line in main.splitlines() if line.startswith('  File "')]
        return calls[0] if calls else self.last_words(late[0])

    def end(self, grace):
        """Waits for `grace` seconds, then kills. True if all ranks ended by themselves."""
        until = time.monotonic() + grace
        while time.monotonic() < until and any(process.poll() is None for process in self.processes):
            time.sleep(0.05)
        alive = [process for process in self.processes if process.poll() is None]
        for process in alive:
            os.killpg(process.pid, signal.SIGKILL)
        for process in alive:
            process.wait()
        return not alive


def wanted_items(launch, results):
    """The requested items, and the lines around them that are not requested."""
    begins, ends = launch.bookends()
    items = [item for item in launch.items if results.wanted(launch.label(item))]
    silent = {item for item in (*begins, *ends) if not results.wanted(launch.label(item))}
    return items, silent, bool(items) or len(silent) < len(begins) + len(ends)


def follow(launch, options, results, mps, run):
    """Runs the requested items of a launch and prints a line for each. `run` has been started and waits."""
    begins, ends = launch.bookends()
    left, reported, _ = wanted_items(launch, results)
    attempt = 0
    while True:
        if results.out_of_time():
            for item in left:
                results.add(launch.label(item), "fail", f"not run: {options.budget:.0f} s were over (--budget)")
            return
        run = run or Run(launch, left, options, mps, attempt)
        attempt += 1
        run.go()
        broken = False
        for item in [*begins, *left, *ends]:
            begin = time.monotonic()
            limit = launch.limits.get(item, launch.limit)
            while (verdict := run.verdict(item, begin + limit)) is None:
                time.sleep(0.02)
            state, text, values = verdict
            if item not in reported:
                results.add(launch.label(item), state, text, time.monotonic() - begin, values)
            if item in (*begins, *ends):
                reported.add(item)
            else:
                left = left[1:]
            if state == "fail" or launch.died and item == launch.items[-1]:
                broken = True
                break
        if not run.end(0.5 if broken else 15) or broken:
            mps.restart()
        if not broken or not left:
            return
        if item == INIT:
            for name in left:
                results.add(launch.label(name), "fail", "not run: the ranks did not start")
            return
        run = None
