"""The charts of docs/performance.md, from baselines by id."""
from evidence import svg
from evidence.svg import Style

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall")
BY_COLLECTIVE = dict(zip(COLLECTIVES, (Style(svg.BLUE), Style(svg.ORANGE, "square"), Style(svg.GREEN, "up"),
                                       Style(svg.RED, "diamond"), Style(svg.PURPLE, "down"))))
H200_SIZES = ("8K", "64K", "512K", "4M", "64M", "256M")


def series(baselines, start, end, sizes):
    """{size: value} of ids 'start/SIZE/end'. The smallest array of 4 ranks has 16 bytes, not 8."""
    found = {}
    for size in sizes:
        row = baselines.get(f"{start}/{size}/{end}") or (size == "8" and baselines.get(f"{start}/16/{end}"))
        if row:
            found[size] = row["value"]
    return found


def ratios(above, below):
    return {size: value / below[size] for size, value in above.items() if size in below}


def h200_speedup(baselines):
    panels = {}
    for ranks in (2, 4, 8):
        panels[f"{ranks} ranks"] = {
            name: ratios(series(baselines, f"rankperf/nccl/{ranks}/{name}", "graph_us", H200_SIZES),
                         series(baselines, f"rankperf/weft/{ranks}/{name}", "graph_us", H200_SIZES))
            for name in COLLECTIVES}
    return svg.line_panels("Ranks that share one H200: NCCL's time / Weft's time", "times as fast as NCCL 2.30.7",
                           H200_SIZES, panels, BY_COLLECTIVE, (.8, 12), (1, 2, 3, 5, 10), (1, "NCCL"))


def h200_time(baselines):
    styles = {"NCCL 2.30.7": Style(svg.RED, "square", "6 4"), "Weft": Style(svg.BLUE)}
    panels = {name: {"NCCL 2.30.7": series(baselines, f"rankperf/nccl/8/{name}", "graph_us", H200_SIZES),
                     "Weft": series(baselines, f"rankperf/weft/8/{name}", "graph_us", H200_SIZES)}
              for name in COLLECTIVES}
    return svg.line_panels("8 ranks that share one H200: time of a call in a CUDA graph", "microseconds", H200_SIZES,
                           panels, styles, (4, 4000), (5, 10, 50, 100, 500, 1000))


def against_mpi(baselines, program, title, sizes, names, y_range, y_ticks):
    panels = {}
    for ranks in (2, 4):
        panels[f"{ranks} processes"] = {
            name: ratios(series(baselines, f"{program}/mpi/{ranks}/{name}", "us", sizes),
                         series(baselines, f"{program}/weft-malloc/{ranks}/{name}", "us", sizes)) for name in names}
    styles = {name: BY_COLLECTIVE[name] for name in names}
    return svg.line_panels(title, "times as fast as OpenMPI 4.1.4", sizes, panels, styles, y_range, y_ticks,
                           (1, "OpenMPI"))


def host(baselines):
    return against_mpi(baselines, "mpi_compare", "Host mode, one machine: OpenMPI's time / Weft's time",
                       ("8", "4K", "64K", "1M", "16M", "64M"), COLLECTIVES, (.4, 14), (.5, 1, 2, 3, 5, 10))


def host_over_tcp(baselines):
    return against_mpi(baselines, "mpi_compare_tcp",
                       "Host mode over loopback TCP: OpenMPI's time / Weft's time",
                       ("8", "512", "4K", "64K", "256K", "1M", "4M", "16M", "64M"), ("all_reduce", "all_gather"),
                       (.7, 3), (1, 1.5, 2, 2.5))


def gpus_over_sockets(baselines):
    names = {"nccl": ("NCCL 2.28.9", Style(svg.RED, "square", "6 4")),
             "nccl-weft-plugin": ("NCCL with Weft's socket plugin", Style(svg.ORANGE, "up", "2 3")),
             "weft": ("Weft", Style(svg.BLUE))}
    sizes = ("8K", "1M", "16M", "128M")
    panels = {}
    for ranks in (2, 4):
        panels[f"{ranks} processes"] = {text: series(baselines, f"own_hosts/{who}/{ranks}/all_reduce", "us", sizes)
                                        for who, (text, _) in names.items()}
    return svg.line_panels("GPU processes over loopback sockets: all_reduce from PyTorch",
                           "microseconds", sizes, panels, dict(names.values()), (20, 120000),
                           (50, 100, 500, 1000, 5000, 10000, 50000, 100000))


def synthesis(baselines):
    rows = {}
    for name, row in baselines.items():
        parts = name.split("/")
        if parts[0] == "synth_perf" and parts[-1] == "ratio":
            rows.setdefault(parts[1], {})[parts[2]] = row["value"]
    rows.pop("dgx-h100x128")  # alone in being far off the scale; the page has it in words
    return svg.dot_rows("Synthesized schedules of 1 GiB, simulated: bandwidth over the bound",
                        "share of the bound (1: no schedule can be faster)", rows, BY_COLLECTIVE, (.978, 1.0005),
                        (.98, .985, .99, .995, 1))


CHARTS = {"h200-speedup": h200_speedup, "h200-time": h200_time, "host": host, "host-over-tcp": host_over_tcp,
          "gpus-over-sockets": gpus_over_sockets, "synthesis": synthesis}
