"""The text of docs/performance.md. Every figure comes from a baseline."""
from evidence.charts import COLLECTIVES, H200_SIZES

TEXT = """\
# How fast Weft is

**No machine with two GPUs has run Weft yet.** The speeds against NCCL are those of ranks that share one H200. No figure
here says how Weft does over NVLink, or over InfiniBand between GPUs. Schedules for such machines are simulated.

| | result | goal |
|---|---|---|
| Ranks that share one H200, against NCCL 2.30.7: geometric mean of {cells} cells, better of stream and graph time | {speedup} times as fast | {speedup_bar} |
| the slowest of these cells (broadcast of 512 KiB, 2 ranks) | {least} times as fast | {least_bar} |
| all_reduce of 8 KiB in a CUDA graph, 2 / 8 ranks | {small2} / {small8} us | {small2_bar} / {small8_bar} us |
| 256 MiB, 8 ranks: share of the memory limit, least of five collectives | {limit} | {limit_bar} |
| Host mode, 2 / 4 processes, 64 KiB to 64 MiB, against OpenMPI 4.1.4: geometric mean | {mpi2} / {mpi4} times as fast | |
| Host mode over loopback TCP, 2 / 4 processes, likewise, all_reduce and all_gather | {tcp2} / {tcp4} times as fast | {tcp_bar} |
| Synthesized schedules of 1 GiB on catalogue machines: share of the bound, least | {synth_least} ({synth_where}) | {synth_bar} |

This page is made by `perf/page` from the rows of [perf/baselines](../perf/baselines). [perf/README.md](../perf/README.md) says
how to repeat them. Microseconds differ from machine to machine; ratios differ less.

## Ranks that share one H200, against NCCL

![Speed-up over NCCL by size, for 2, 4 and 8 ranks](charts/h200-speedup.svg)

Ranks are threads of one process. Times are medians of calls in a CUDA graph, fp32, out of place, with checked data
(`rankperf`). NCCL was told to share the GPU (`NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0`, `NCCL_MAX_CTAS` of 128 divided
by the ranks). NCCL has not been measured at 256 MiB with 2 ranks. Another H200 gave a mean of 2.68 to 2.77. One cell of one
run was once slower than NCCL (broadcast of 64 KiB, 8 ranks, 0.74); it was 1.91 in the next run, and this did not come back.
All this was measured before ranks that share a GPU left a thread block each to other communicators. Since then the mean is {leaving}, on a
machine where the version before had 2.55. A build that left none had {before_mean} of the speed before in the mean and {before_least} in the
slowest cell; `WEFT_BLOCK_SHARE=100` asks for that.

![Time by size, 8 ranks, Weft and NCCL](charts/h200-time.svg)

Time of a call with 8 ranks, us, Weft / NCCL:

{h200_table}

Between 4 processes that share the GPU under MPS, 64 MiB reach {registered} of the threads' speed with registered buffers and
{plain} with plain ones. A DDP step of PyTorch takes {ddp} ms there. Stock NCCL 2.28.9 can only use sockets between such
processes and takes {ddp_nccl} ms; Weft over sockets takes {ddp_sockets} ms.

Eight processes on one H200 as two hosts of four (8x4) and four of two (8x2) (`NCCL_HOSTID`), sockets on loopback: NCCL 2.30.7's time over
Weft's, out of place, both in turn (`perf/network/compare_gpu_hosts`). Large messages between processes of one machine are lent, not
copied (`WEFT_LEND_PAGES=0`, one run at 32 MiB: from 12% faster to 22% slower). A figure is the median of two rounds of 10 calls after 3. Both libraries'
times vary from machine to machine: a day before, the least cells of 8x2 were others. NCCL's small ones vary most: its all_gather of 8 KiB on 8x2 took 4.3 ms in these rounds
and 0.1 in others. At 32 MiB between four hosts Weft's all_reduce, all_gather and alltoall move 23, 25 and 26 GB/s in all, where loopback TCP carries about 27,
and between two hosts alltoall moves 22. Half a ping-pong of 8 bytes takes {ping_pong} us between two hosts of four ranks, 33 to 36 with 8 KiB, and 28 between hosts
of one rank, which use FIFOs (8 bytes, NCCL on another day: 30 to 33; `hop_parts`: TCP alone 2 to 4):

{hosts_table}

## Any schedule on GPUs, as lanes

Ranks are threads that share one H200 (`schedule_perf`). The share of the copy bandwidth counts every source of a step as a read and
every destination as a write. Straight messages save some of them, so it can exceed 1.

{lanes_table}

A ring of 8 ranks is {ring_ag} (all_gather) and {ring_ar} (all_reduce) times as fast as NCCL 2.30.7 at 64 MiB. Where all messages go through
slots its all_gather of 256 MiB reaches {ring_slots} of the copy bandwidth. A hop of small messages, as packets, takes {hop} us (goal: {hop_bar}).
{synthesized} synthesized schedules of six machines gave the right data, with one thread block per rank too. A step of small
messages takes {steps_least} to {steps_most} us there (goal: 2; 1 KiB over the steps that follow each other). The slow ones wait for other lanes of their rank,
which costs a fence and a trip through memory, or have few steps, so that the start of a call counts.

## Host mode against OpenMPI

![Speed-up over OpenMPI by size, for 2 and 4 processes](charts/host.svg)

Two cores (Neoverse-N1), both libraries on the same malloc'ed buffers, in turn in one run (`mpi_compare`). With `ncclMemAlloc` buffers the
mean from 64 KiB on is {mem2} (2 processes) and {mem4} (4). Below 4 KiB OpenMPI is often faster: a broadcast of 8 bytes takes
Weft {tiny} us and OpenMPI {tiny_mpi}. Four processes share two cores, so their small calls measure the scheduler too. (The smallest blocks of four
ranks make 16 bytes, not 8.)

## Between hosts, over sockets

![Time of an all_reduce between GPU processes over sockets](charts/gpus-over-sockets.svg)

Every process counts as a host of its own, on one machine: sockets on loopback, GPU data through host memory. The goal is twice
NCCL's speed. Weft is {net_list} times as fast with 2 processes (8 KiB, 1, 16, 128 MiB) and {net_list4} with 4. At 8 KiB with 2 processes PyTorch itself takes 20 to 26 us of a call;
inside a CUDA graph that cell is {net_graph} times as fast.

![Speed-up over OpenMPI over TCP](charts/host-over-tcp.svg)

Host mode, two cores, OpenMPI with `--mca btl tcp,self`. The chart is the last whole table, on a busy machine. Since then large arrays go
straight to every peer: the means at the top are from later runs on an idle machine, the least cell from 64 KiB on was {tcp_least2} with 2 processes and {tcp_least4} with 4.
All five collectives on 18 November: means {five2} and {five4}, least cells {five_least2} and {five_least4}, both all-to-all, where the kernel's copies limit both libraries.
Below 64 KiB with 2 processes OpenMPI is up to 0.9 us faster, 15% of a call at most.

## Synthesized schedules against the bound

![Share of the bound by machine and collective](charts/synthesis.svg)

Predicted by Weft's simulator, 1 GiB, latencies included. The bound is what no schedule can exceed on that machine. Up to 128 GPUs
every search takes less than {synth_seconds} s on two cores. For 1,024 GPUs (dgx-h100x128) it takes {big_seconds} s at most, with ratios of {big_ratio}, and {big_broadcast} for
broadcast. On machines with a broken part (177 cases up to 72 GPUs) the least ratio is {broken}.
"""


def h200_table(baselines):
    lines = ["| collective | " + " | ".join(H200_SIZES) + " |", "|---" * (len(H200_SIZES) + 1) + "|"]
    for name in COLLECTIVES:
        cells = [" / ".join(f"{baselines[f'rankperf/{who}/8/{name}/{size}/graph_us']['value']:g}" for who in ("weft", "nccl"))
                 for size in H200_SIZES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def hosts_table(baselines):
    sizes = ["8K", "128K", "2M", "32M"]
    lines = ["| | " + " | ".join(f"{size}iB" for size in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    for shape in ["8x4", "8x2"]:
        for name in ["all_reduce", "all_gather", "reduce_scatter", "alltoall"]:
            cells = [f"{baselines[f'gpu_hosts/{shape}/{name}/{size}/ratio']['value']:.2f}" for size in sizes]
            lines.append(f"| {shape} {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def lanes_table(baselines):
    lines = ["| schedule | ranks | 64 MiB, us | of copy | 256 MiB, us | of copy |", "|---|---|---|---|---|---|"]
    for name in baselines:
        parts = name.split("/")
        if parts[0] != "schedule_perf" or parts[-1] != "graph_us" or parts[-2] != "256M":
            continue
        cells = []
        for size in ("64M", "256M"):
            for figure in ("graph_us", "copy_fraction"):
                row = baselines['/'.join(parts[:-2] + [size, figure])]
                cells.append(f"{row['value']:,.0f}" if figure == 'graph_us' else f"{row['value']:.2f}")
        lines.append(f"| {parts[4]} | {parts[2]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def span(values):
    return f"{min(values):.2f} to {max(values):.2f}"


def synthesis(baselines):
    """(id parts, row) of the catalogue machines up to 128 GPUs."""
    for name, row in baselines.items():
        parts = name.split("/")
        if parts[0] == "synth_perf" and parts[1] != "dgx-h100x128":
            yield parts, row


def text(baselines):
    def value(name):
        return f"{baselines[name]['value']:g}"

    def bar(name):
        return f"{baselines[name]['bar']:g}"

    ratios = [(row["value"], parts) for parts, row in synthesis(baselines) if parts[-1] == "ratio"]
    least, where = min(ratios)
    small = "rankperf/weft/{}/all_reduce/8K/graph_us"
    net = [value(f"own_hosts/weft/2/all_reduce/{size}/speedup") for size in ("8K", "1M", "16M", "128M")]
    net4 = [value(f"own_hosts/weft/4/all_reduce/{size}/speedup") for size in ("8K", "1M", "16M", "128M")]
    big = [baselines[f"synth_perf/dgx-h100x128/{name}/1G/ratio"]["value"] for name in COLLECTIVES[:3]]
    steps = [row["value"] for name, row in baselines.items() if name.startswith("schedule_perf/weft/") and name.endswith("/step_us")]
    return TEXT.format(
        cells=sum(1 for name in baselines if name.startswith("rankperf/nccl/") and name.endswith("/graph_us")),
        speedup=value("rankperf/weft/speedup_over_nccl"), speedup_bar=bar("rankperf/weft/speedup_over_nccl"),
        least=value("rankperf/weft/speedup_over_nccl_least"), least_bar=bar("rankperf/weft/speedup_over_nccl_least"),
        small2=value(small.format(2)), small8=value(small.format(8)), small2_bar=bar(small.format(2)),
        small8_bar=bar(small.format(8)), limit=value("rankperf/weft/8/least/256M/limit_fraction"),
        limit_bar=bar("rankperf/weft/8/least/256M/limit_fraction"),
        mpi2=value("mpi_compare/weft-malloc/2/speedup_over_mpi"), mpi4=value("mpi_compare/weft-malloc/4/speedup_over_mpi"),
        mem2=value("mpi_compare/weft-memalloc/2/speedup_over_mpi"), mem4=value("mpi_compare/weft-memalloc/4/speedup_over_mpi"),
        tiny=value("mpi_compare/weft-malloc/2/broadcast/8/us"), tiny_mpi=value("mpi_compare/mpi/2/broadcast/8/us"),
        tcp2=value("mpi_compare_tcp/weft-malloc/2/speedup_over_mpi"), tcp4=value("mpi_compare_tcp/weft-malloc/4/speedup_over_mpi"),
        tcp_bar=bar("mpi_compare_tcp/weft-malloc/2/speedup_over_mpi"),
        tcp_least2=value("mpi_compare_tcp/weft/2/speedup_over_mpi_least"),
        tcp_least4=value("mpi_compare_tcp/weft/4/speedup_over_mpi_least"),
        five2=value("mpi_compare_tcp/weft/2/five_collectives/speedup_over_mpi"),
        five4=value("mpi_compare_tcp/weft/4/five_collectives/speedup_over_mpi"),
        five_least2=value("mpi_compare_tcp/weft/2/five_collectives/speedup_over_mpi_least"),
        five_least4=value("mpi_compare_tcp/weft/4/five_collectives/speedup_over_mpi_least"),
        synth_least=f"{least:g}", synth_where=f"{where[2]} on {where[1]}", synth_bar=f"{baselines['/'.join(where)]['bar']:g}",
        leaving=value("rankperf/weft/leaving_a_block/speedup_over_nccl"),
        before_mean=value("compare_rankperf/weft-over-before/mean/ratio"),
        before_least=value("compare_rankperf/weft-over-before/least/ratio"),
        h200_table=h200_table(baselines), lanes_table=lanes_table(baselines),
        ring_ag=value("schedule_perf/weft/8/all_gather/ring-all_gather-8/64M/speedup_over_nccl"),
        ring_ar=value("schedule_perf/weft/8/all_reduce/ring-all_reduce-8/64M/speedup_over_nccl"),
        ring_slots=value("schedule_perf/weft/8/all_gather/ring-slots/256M/copy_fraction"),
        hop=value("schedule_perf/weft/hop_us"), hop_bar=bar("schedule_perf/weft/hop_us"),
        synthesized=value("schedule_perf/weft/synthesized_right"),
        steps_least=f"{min(steps):.1f}", steps_most=f"{max(steps):.1f}",
        hosts_table=hosts_table(baselines), ping_pong=value("ping_pong_perf/weft/8x4/8B/half_us"),
        registered=span([baselines[f"process_perf/4/{name}/64M/registered_ratio"]["value"] for name in COLLECTIVES]),
        plain=span([baselines[f"process_perf/4/{name}/64M/plain_ratio"]["value"] for name in COLLECTIVES]),
        ddp=value("torch/4/ddp/weft/step_ms"), ddp_nccl=value("torch/4/ddp/nccl-own-hosts/step_ms"),
        ddp_sockets=value("torch/4/ddp/weft-own-hosts/step_ms"),
        net_list=", ".join(net), net_list4=", ".join(net4), net_graph=value("own_hosts/weft/2/all_reduce/8K/graph_speedup"),
        synth_seconds=f"{max(row['value'] for parts, row in synthesis(baselines) if parts[-1] == 'seconds') + .05:.1f}",
        big_seconds=f"{max(baselines[f'synth_perf/dgx-h100x128/{name}/1G/seconds']['value'] for name in COLLECTIVES[:4]):g}",
        big_ratio=f"{min(big):g}", big_broadcast=value("synth_perf/dgx-h100x128/broadcast/1G/ratio"),
        broken=f"{min(row['value'] for name, row in baselines.items() if name.startswith('synth_perf_broken/least/')):g}")
