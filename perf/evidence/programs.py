"""Turns what perf programs print into rows."""
import datetime
import re


class NotTheirOutput(Exception):
    """The text has none of the program's lines."""


def short_size(size):
    for letter, bits in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << bits and size % (1 << bits) == 0:
            return f"{size >> bits}{letter}"
    return str(size)


class Rows:
    def __init__(self, machine):
        self.rows = []
        self.common = {"date": datetime.date.today().isoformat(), "machine": machine}

    def add(self, name, value, unit, better, command, library="Weft"):
        self.rows.append({"id": name, "value": float(value), "unit": unit, "better": better, "command": command,
                          **self.common, "library": library})


def rankperf(text, options):
    """The table of rankperf. Older tables do not say whose library it was: --library does."""
    out, ranks, contender = Rows(options.machine), options.ranks, options.library
    library, copy_gbps = {"weft": "Weft", "nccl": "NCCL"}[contender], None
    for line in text.splitlines():
        if match := re.match(r"# library version (\d+), (\d+) ranks", line):
            number, ranks = int(match[1]), int(match[2])
            version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
            library = ("Weft, as NCCL " if contender == "weft" else "NCCL ") + version
        elif match := re.match(r"# library (Weft|NCCL)", line):
            contender, library = match[1].lower(), line[len("# library "):]
        start = f"rankperf/{contender}/{ranks}/"
        command = f"rankperf {ranks}"
        words = line.split()
        if match := re.match(r"# D2D copy ([\d.]+) GB/s", line):
            copy_gbps = float(match[1])
            out.add(start + "copy_gbps", copy_gbps, "GB/s", "higher", command, library)
        elif match := re.match(r"# init ([\d.]+) s", line):
            out.add(start + "init_s", match[1], "s", "lower", command, library)
        elif len(words) == 7 and words[1].isdigit():
            if ranks is None:
                raise NotTheirOutput("how many ranks? (--ranks)")
            if words[6] != "0":
                raise NotTheirOutput(f"wrong values: {line}")
            cell = f"{start}{words[0]}/{short_size(int(words[1]))}"
            out.add(f"{cell}/wall_us", words[2], "us", "lower", command, library)
            out.add(f"{cell}/graph_us", words[3], "us", "lower", command, library)
            if copy_gbps and int(words[1]) >= 64 << 20:
                out.add(f"{cell}/limit_fraction", round(float(words[5]) / copy_gbps, 3), "of the memory limit", "higher",
                        command, library)
    return out.rows


def mpi_compare(text, options):
    """The table of mpi_compare; its ids say whether it went over the network (--own-hosts)."""
    out, ranks = Rows(options.machine), options.ranks
    program = "mpi_compare_tcp" if options.own_hosts else "mpi_compare"
    for line in text.splitlines():
        if match := re.match(r"# MPI and weft, (\d+) ranks", line):
            ranks = int(match[1])
        command = f"mpirun -n {ranks} mpi_compare" + (" --own-hosts" if options.own_hosts else "")
        words = line.split()
        if match := re.match(r"# geometric mean of MPI/weft at >= 64 KiB: malloc ([\d.]+), MemAlloc ([\d.]+)", line):
            for memory, value in (("malloc", match[1]), ("memalloc", match[2])):
                out.add(f"{program}/weft-{memory}/{ranks}/speedup_over_mpi", value, "x", "higher", command)
        elif match := re.match(r"# least MPI/weft at >= 64 KiB: ([\d.]+)", line):
            out.add(f"{program}/weft/{ranks}/speedup_over_mpi_least", match[1], "x", "higher", command)
        elif match := re.match(r"# most extra us at <= 4 KiB: ([+-][\d.]+)", line):
            out.add(f"{program}/weft/{ranks}/most_extra_us", match[1], "us", "lower", command)
        elif len(words) >= 8 and words[1].isdigit() and not line.startswith("#"):
            if ranks is None:
                raise NotTheirOutput("how many ranks? (--ranks)")
            if words[-1] != "0":
                raise NotTheirOutput(f"wrong values: {line}")
            for who, value in zip(("mpi", "weft-malloc", "weft-memalloc"), words[2:5]):
                out.add(f"{program}/{who}/{ranks}/{words[0]}/{short_size(int(words[1]))}/us", value, "us", "lower",
                        command, "MPI" if who == "mpi" else "Weft")
    return out.rows


def synth_perf(text, options):
    """The table of synth_perf."""
    out = Rows(options.machine)
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 12 and words[1].isdigit() and words[8].endswith("%"):
            machine = words[0].replace("/", "-")  # broken ones: dgx2x2-nic/2
            start = f"synth_perf/{machine}/{words[2]}/1G/"
            for name, value, unit, better in (("gbps", words[3], "GB/s", "higher"),
                                              ("ratio", words[5], "of the bound", "higher"),
                                              ("seconds", words[6], "s", "lower")):
                out.add(start + name, value, unit, better, "synth_perf")
    return out.rows


FORMATS = {"rankperf": rankperf, "mpi_compare": mpi_compare, "synth_perf": synth_perf}


def convert(text, options):
    rows = FORMATS[options.source](text, options)
    if not rows:
        raise NotTheirOutput(f"no line of {options.source}")
    return rows
