"""Two libraries, measured in turn: what the compare programs share."""
import argparse
import subprocess
import sys
from pathlib import Path

from evidence import programs, rows

ROOT = Path(__file__).resolve().parent.parent.parent


def parser(name, rounds):
    """With the arguments that both have."""
    made = argparse.ArgumentParser(prog=name)
    made.add_argument("libraries", nargs=2, metavar="LIB", help="libnccl.so.2, or the folder that holds it")
    made.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"that count, {rounds} unless told")
    made.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for one run, 120 unless told")
    return made


def library_file(name):
    path = Path(name)
    path = path / "libnccl.so.2" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"no library {path}")
    return path.resolve()


def is_weft(library):
    return b"weftHostMode" in library.read_bytes()


def output_of(library, command, timeout, settings=None):
    result = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, timeout=timeout)
    if result.returncode != 0:
        raise ChildProcessError(f"{library}: {command[0]} ended with {result.returncode}")
    return result.stdout


def measure(libraries, rounds, run):
    """The rows of run(library), for each library. A first round of each does not count."""
    measured = [[], []]
    for number in range(rounds + 1):
        for side, library in enumerate(libraries):
            found = run(library)
            if number > 0:
                measured[side] += found
    return measured


def print_heading(libraries, rounds):
    print(f"# A: {libraries[0]}\n# B: {libraries[1]}\n# us, medians of {rounds} runs in turn; A/B above 1: B is faster")


def print_mean(a, b, cells, text):
    ratios = [a[cell] / b[cell] for cell in cells if cell in a and cell in b]
    if ratios:
        print(f"# geometric mean of A/B, {text}, {len(ratios)} cells: {rows.geometric_mean(ratios):.3f}")


def call(name, main):
    try:
        main()
    except (rows.Malformed, programs.NotTheirOutput, OSError, subprocess.TimeoutExpired) as problem:
        sys.exit(f"{name}: {problem}")
