# The lines that scripts/dropin prints, and the files it writes.
import ctypes
import json
import os
import re
import subprocess
import threading
import time


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return (done.stdout.strip() or done.stderr.strip()).replace("\n", "; ")


class Report:
    """One line per name. Measured values are kept for comparisons between runs with different libraries."""

    def __init__(self, options):
        self.options = options
        self.started = time.monotonic()
        self.lines = []
        self.values = {}
        self.lock = threading.Lock()

    def heading(self):
        library = ctypes.CDLL(self.options.library)
        library.weftVersion.restype = ctypes.c_char_p
        packages = ("import importlib.metadata as m; print(*(f'{d.name} {d.version}' for d in m.distributions() "
                    "if d.name in ('torch', 'jax', 'cupy-cuda13x') or (d.name or '').startswith('nvidia-nccl')), sep=', ')")
        print("#", library.weftVersion().decode(), "|", self.options.library)
        print("#", output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"), "|",
              output_of(self.options.python, "-c", packages), "|", output_of("mpirun", "--version").split(";")[0], flush=True)

    def wanted(self, name):
        return re.search(self.options.only, name) is not None

    def spent(self):
        return time.monotonic() - self.started

    def out_of_time(self):
        return self.spent() > self.options.budget

    def add(self, name, state, text="", seconds=None, values=None):
        text = " ".join(str(text).split())[:400]
        took = "" if seconds is None else f"{seconds:6.1f} s"
        with self.lock:
            self.lines.append({"name": name, "state": state, "text": text, "seconds": seconds, "values": values or {}})
            if values:
                self.values[name] = values
            print(f"{state:4}  {name:44} {took:9} {text}".rstrip(), flush=True)

    def closing(self):
        count = {state: sum(line["state"] == state for line in self.lines) for state in ("pass", "fail", "skip")}
        with open(os.path.join(self.options.logs, "results.json"), "w", encoding="utf-8") as out:
            json.dump(self.lines, out, indent=1)
        print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped in {self.spent():.0f} s; "
              f"logs: {self.options.logs}")
        return 1 if count["fail"] or not count["pass"] else 0
