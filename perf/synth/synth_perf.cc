// The table of synthesis: how near the schedules come to the bound, and the time of synthesize(),
// in wall-clock and CPU seconds. Then every slice of the result is simulated, at 1 GiB by default.
// `off` compares the estimate of synthesize() with that simulation. --published compares with the
// schedules that TACCL's authors have published, in the same simulator, at sizes from 1 KiB to 1
// GiB. --broken breaks one part of every machine at a time.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/synthesis.h"
#include "perf/synth/broken.h"
#include "src/base/error.h"
#include "src/schedule/schedule_file.h"
#include "src/tools/command_line.h"

namespace weft {
namespace {

struct Settings {
  std::vector<std::string> machines = {
      "dgx1v",       "ndv2x2",     "ndv2x4",     "dgx2",       "dgx2x2",     "dgx-a100x2",
      "dgx-a100x4",  "dgx-a100x8", "dgx-h100x1", "dgx-h100x2", "dgx-h100x4", "dgx-h100x8",
      "dgx-h100x16", "mi250x1",    "mi250x2",    "pcie-4x",    "pcie-8x",    "pcie-8x-1nic",
      "rtx4090-4x",  "rtx4090-8x", "l20-8x",     "gb200-nvl72"};
  std::vector<std::string> collectives = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                          "alltoall"};
  uint64_t size = uint64_t{1} << 30;
  int most_alltoall = 32;  // GPUs
  std::string published;
  bool broken = false;
  SynthesisOptions options;
};

// The required share of the bound for each collective.
double wanted(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ? 0.99 : 0.98;
}

constexpr double kWantedOfBroken = 0.98;

double wanted_seconds(int ranks) {
  if (ranks <= 16) return 0.1;
  if (ranks <= 32) return 0.5;
  return ranks <= 128 ? 3 : 30;
}

struct Published {
  const char *machine, *files;  // machine: with the costs that the files were made for
};
constexpr Published kPublished[] = {{"ndv2x2", "allgather-ndv2x2-"},
                                    {"dgx2-tecclx2", "allgather-dgx2x2-"}};

// The time of the best published schedule.
double published_us(const Machine& machine, const std::vector<Schedule>& theirs, double bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (const Schedule& schedule : theirs)
    best = std::min(best, simulate(machine, schedule, bytes).time_us);
  return best;
}

void compare(const Settings& settings) {
  int missed = 0;
  fmt::print("{:14} {:>12} {:>10} {:>10} {:>6} {:>8} {:>8} {:11}\n", "all_gather", "bytes", "us",
             "TACCL us", "ratio", "GB/s", "seconds", "engine");
  for (const Published& published : kPublished) {
    const Machine machine = load_machine(published.machine);
    const auto ranks = static_cast<int>(gpus(machine).size());
    std::vector<Schedule> theirs;
    for (const auto& entry : std::filesystem::directory_iterator(settings.published)) {
      if (!entry.path().filename().string().starts_with(published.files)) continue;
      try {
        theirs.push_back(load_schedule(entry.path().string()).schedule);
      } catch (const Error& error) {
        fmt::print("left out: {}\n", error.what());
      }
    }
    if (theirs.empty())
      fail(ncclInvalidArgument, "no {}*.xml in {}", published.files, settings.published);
    for (double bytes = 1 << 10; bytes <= 1 << 30; bytes *= 4) {
      const double us = published_us(machine, theirs, bytes);
      const Synthesized r = synthesize(machine, {CollectiveKind::kAllGather, ranks, 0}, bytes);
      const double ours = simulate(machine, r.schedule, bytes).time_us;
      missed += ours > us ? 1 : 0;
      fmt::print("{:14} {:12.0f} {:10.2f} {:10.2f} {:6.3f} {:8.3f} {:8.3f} {:11}{}\n",
                 published.machine, bytes, ours, us, us / ours, bytes / ours * 1e-3, r.seconds,
                 r.engine, ours > us ? "  slower" : "");
      std::fflush(stdout);
    }
  }
  fmt::print("{} of the rows are slower than TACCL's\n", missed);
}

// Prints the rows of a machine. Returns how many rows miss the required share.
int run_machine(const Settings& settings, const std::string& topo, const Machine& machine) {
  int missed = 0;
  const auto ranks = static_cast<int>(gpus(machine).size());
  for (const std::string& text : settings.collectives) {
    const auto kind = parse_collective(text);
    if (!kind) fail(ncclInvalidArgument, "'{}' is no collective", text);
    if (*kind == CollectiveKind::kAllToAll && ranks > settings.most_alltoall) continue;
    fmt::print("{:17} {:>5} {:15} ", topo, ranks, text);
    try {
      const std::clock_t begin = std::clock();
      const Synthesized r = synthesize(machine, {*kind, ranks, 0},
                                       static_cast<double>(settings.size), settings.options);
      const double cpu = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      const Simulation all = simulate(machine, r.schedule, static_cast<double>(settings.size));
      const double ratio = all.algbw_gbps / r.bound_gbps;
      const bool slow = !settings.broken && r.seconds > wanted_seconds(ranks);
      const bool low = ratio < (settings.broken ? kWantedOfBroken : wanted(*kind));
      missed += slow || low ? 1 : 0;
      const bool exact = !low || throughput_bound(machine, {*kind, ranks, 0}).exact;
      fmt::print("{:10.2f} {:10.2f} {:7.4f} {:8.3f} {:8.3f} {:6.2f}% {:11} {:5} {:8}{}{}{}\n",
                 all.algbw_gbps, r.bound_gbps, ratio, r.seconds, cpu,
                 (r.time_us / all.time_us - 1) * 100, r.engine, r.lanes, r.steps,
                 low ? "  ratio" : "", exact ? "" : " (of a bound that may be too high)",
                 slow ? "  slow" : "");
    } catch (const Error& error) {
      missed++;
      fmt::print("{}\n", error.what());
    }
    std::fflush(stdout);
  }
  return missed;
}

void run(const Settings& settings) {
  int missed = 0;
  fmt::print("{:17} {:>5} {:15} {:>10} {:>10} {:>7} {:>8} {:>8} {:>7} {:11} {:>5} {:>8}\n",
             "machine", "ranks", "collective", "GB/s", "bound", "ratio", "seconds", "cpu", "off",
             "engine", "lanes", "steps");
  for (const std::string& topo : settings.machines) {
    const Machine machine = load_machine(topo);
    if (!settings.broken)
      missed += run_machine(settings, topo, machine);
    else
      for (const BrokenMachine& broken : broken_machines(machine))
        missed += run_machine(settings, topo + broken.name, broken.machine);
  }
  fmt::print("{} of the rows miss what is asked of them\n", missed);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Settings settings;
  weft::CommandLine program("synth_perf",
                            "How good synthesized schedules are, and how quickly they are made");
  program.add_option("machines", settings.machines, "machines of the catalogue, or files");
  program.add_option("--coll", settings.collectives, "collectives");
  program.add_option("--size", settings.size, "bytes of the whole array; K, M, G").in_bytes();
  program.add_option("--engine", settings.options.engine, "use this engine only");
  program
      .add_option("--published", settings.published, "folder of TACCL's schedules to compare with")
      .folder();
  program.add_flag("--broken", settings.broken, "break a part of every machine, one by one");
  program.calls([&settings] {
    if (settings.published.empty())
      weft::run(settings);
    else
      weft::compare(settings);
  });
  return program.run(argc, argv);
}
