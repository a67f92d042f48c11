// See init_plans.h.
#include "src/planner/init_plans.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <span>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"
#include "src/planner/rates_file.h"
#include "src/planner/table_builder.h"
#include "src/planner/tuner_plugin.h"
#include "src/planner/via_host.h"

namespace weft {
namespace {

// A length in front of every part.
void put(std::string& text, std::string_view part) {
  text += fmt::format("{}\n", part.size());
  text += part;
}

std::string_view take(std::string_view& text) {
  size_t size = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  const auto digits = static_cast<size_t>(rest - text.data());
  if (error != std::errc() || digits >= text.size() || text[digits] != '\n' ||
      size > text.size() - digits - 1)
    fail(ncclInternalError, "what rank 0 has planned arrived in pieces");
  const std::string_view part = text.substr(digits + 1, size);
  text.remove_prefix(digits + 1 + size);
  return part;
}

// The simulator's view of how data is cut: coarser than executors do, which hardly changes times.
SimulationOptions quick_simulation(int nranks) {
  SimulationOptions options;
  const bool many = nranks > 32;
  options.slice_bytes = many ? 1 << 20 : 256 << 10;
  options.most_slices = many ? 4 : 8;
  return options;
}

// Those measured here, where there are such.
void take_rates(const InitPlansRequest& request, TableRequest& table) {
  const std::string section = request.on_gpus                  ? kGpuRates
                              : !request.setting.hosts.empty() ? kNetworkRates
                              : request.setting.one_process    ? kThreadRates
                                                               : kProcessRates;
  table.rates = default_rates(section);
  table.origin = "default rates (weft calibrate measures them)";
  const auto measured = load_rates(request.config);
  if (!measured.has_value()) return;
  const auto it = measured->rates.find(section);
  if (it == measured->rates.end()) return;
  table.rates = it->second;
  if (const auto factors = measured->factors.find(section); factors != measured->factors.end())
    table.factors = factors->second;
  table.origin = fmt::format("rates {}", measured->measured);
}

// Lanes wait for each other, and each is a thread block that may need a multiprocessor of its own.
constexpr ptrdiff_t kResidentLanes = 64;

ptrdiff_t most_ranks_of_a_gpu(std::span<const int> gpus) {
  ptrdiff_t most = 0;
  for (const int gpu : gpus) most = std::max(most, std::count(gpus.begin(), gpus.end(), gpu));
  return most;
}

// GPUs whose data goes through host memory, with or without CPUs that reduce.
SelectionTable via_host_table(const InitPlansRequest& request, std::span<const int> places,
                              TableRequest table) {
  const auto measured = load_rates(request.config);
  const auto rates = [&](const char* section) {
    const bool known = measured.has_value() && measured->rates.contains(section);
    return known ? measured->rates.at(section) : default_rates(section);
  };
  const Rates fifos = rates(kHostFifoRates), cpus = rates(kThreadRates);
  const Machine machine = machine_of_ranks(request.machine, places, true);
  table.machine = &machine;
  table.simulation = via_host_simulation(fifos, cpus, request.setting.slice_bytes, request.nranks);
  table.cpus = cpu_rates(cpus, request.setting.cores);
  table.call_us = fifos.call_us;
  table.one_round_us = kOneRoundUs;
  table.one_round_us_mb = kOneRoundUsMb;
  table.unfit = [&](const Schedule& schedule) {
    std::string why = request.unfit_for_host_fifos ? request.unfit_for_host_fifos(schedule) : "";
    const auto lanes = static_cast<ptrdiff_t>(schedule.ranks[0].lanes.size());
    if (why.empty() && lanes * most_ranks_of_a_gpu(places) > kResidentLanes)
      why = "the lanes of ranks that share a GPU might not run side by side";
    return why;
  };
  table.factors = {};
  table.origin = fmt::format("times are simulated, CPUs reduce by {}",
                             measured.has_value() && measured->rates.contains(kThreadRates)
                                 ? "rates " + measured->measured
                                 : "default rates (weft calibrate measures them)");
  SelectionTable built = build_table(table);
  if (!table.cpu_plans_only)
    ask_tuner(request.config, request.nranks, request.hosts, request.communicator, built);
  const std::set<int> used(places.begin(), places.end());
  built.machine = fmt::format("{} ranks on {} GPU{}, through host memory", request.nranks,
                              used.size(), used.size() == 1 ? "" : "s");
  return built;
}

// Says all that a table of simulated times depends on.
std::string table_name(const TableRequest& request, uint64_t schedules) {
  std::string text = fmt::format("3 {} {} {} {} {} {}", request.nranks, request.rules.plan,
                                 request.rules.max_channels, request.simulation.most_slices,
                                 schedules, request.setting.no_cpu_nodes);
  for (const NcclChoice* choice : {&request.rules.algorithms, &request.rules.protocols})
    for (const unsigned allowed : choice->allowed) text += fmt::format(" {}", allowed);
  return fmt::format("table-{}-{:016x}", plan_key(*request.machine),
                     siphash(Secret{}, text.data(), text.size()));
}

// The one in the cache, where it is; otherwise built, and put there. Costs are simulated, which
// takes longer than to read them.
SelectionTable simulated_table(const Config& config, const TableRequest& request,
                               uint64_t schedules) {
  if (config.cache.empty()) return build_table(request);
  const std::string path = config.cache + "/" + table_name(request, schedules);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) try {
      SelectionTable table = SelectionTable::decode(read_cached(path));
      table.origin = request.origin + "; the table from the cache";
      return table;
    } catch (const Error& error) {
      WEFT_WARN("{}: a cached table is not used: {}", path, error.what());
    }
  SelectionTable table = build_table(request);
  try {
    write_cached(path, table.encode());
  } catch (const Error& error) {
    WEFT_INFO(kInit, "the table is not kept: {}", error.what());
  }
  return table;
}

}  // namespace

std::string CommunicatorPlans::encode() const {
  std::string text;
  put(text, table.encode());
  for (const auto& schedule : schedules->all()) {
    put(text, schedule->path);
    put(text, schedule->text);
  }
  return text;
}

CommunicatorPlans CommunicatorPlans::decode(std::string_view text) {
  CommunicatorPlans plans;
  plans.table = SelectionTable::decode(take(text));
  std::vector<std::pair<std::string, std::string>> files;
  while (!text.empty()) {
    const std::string name(take(text));
    files.emplace_back(name, take(text));
  }
  plans.schedules = ImportedSchedules::from_texts(files);
  return plans;
}

CommunicatorPlans make_init_plans(const InitPlansRequest& request) {
  CommunicatorPlans plans;
  TableRequest table;
  table.nranks = request.nranks;
  table.rules = TuningRules::from(request.config);
  table.setting = request.setting;
  Machine emulated;
  if (!request.config.topo.empty()) {
    emulated = load_machine(request.config.topo);
    const auto available = static_cast<int>(gpus(emulated).size());
    if (available < request.nranks)
      fail(ncclInvalidUsage, "WEFT_TOPO: {} has {} GPUs, the communicator has {} ranks",
           request.config.topo, available, request.nranks);
    table.machine = &emulated;
    table.simulation = quick_simulation(request.nranks);
    table.origin = "times are simulated";
    if (available == request.nranks && request.nranks > 1 && request.nranks <= kMostTableRanks) {
      const MadeSchedules made = schedules_for(
          request.config, emulated, synthesis_seconds(request.config, emulated), request.fits);
      plans.schedules = made.schedules;
      table.schedules = made.schedules->all();
      table.origin += fmt::format("; {} schedules from the cache, {} synthesized, in {:.0f} ms",
                                  made.fetched, made.made, made.seconds * 1e3);
      if (made.cut_short + made.left > 0)
        WEFT_INFO(kInit,
                  "{}: {} of {} schedules are the first that were found{}; "
                  "WEFT_SYNTHESIS_SECONDS=60 looks for better ones once, and the cache keeps them",
                  request.config.topo, made.cut_short, made.fetched + made.made,
                  made.left == 0 ? ""
                                 : fmt::format(", for {} more there was no time and generators "
                                               "serve instead",
                                               made.left));
    }
  } else {
    take_rates(request, table);
  }
  if (request.on_gpus && request.hosts == 1 && request.config.topo.empty()) {
    const std::vector<int> places = gpus_of_ranks(request.machine, request.gpus, request.nranks);
    std::string via_host = request.via_host;
    if (via_host.empty()) via_host = no_peer_access(request.machine, places);
    if (!via_host.empty() && !places.empty()) {
      plans.table = via_host_table(request, places, table);
      plans.table.via_host = via_host;
      return plans;
    }
    if (!via_host.empty())
      WEFT_INFO(kInit, "{}, but not all GPUs of these ranks are seen here: simple rules decide",
                via_host);
    // GPUs do their work side by side; ranks that share one take turns.
    const auto found = static_cast<int>(gpus(request.machine).size());
    table.setting.cores = std::clamp(found, 1, request.nranks);
    table.setting.on_gpus = true;
    if (!request.config.algo.empty())
      WEFT_INFO(kInit,
                "NCCL_ALGO has no effect between GPUs that reach each other's memory: WEFT_PLAN "
                "forces a plan");
    // Where every byte between GPUs crosses a CPU, that may as well reduce.
    Machine linked;
    std::vector<PlanOption> helpers;
    if (request.setting.no_cpu_nodes.empty() && only_over_host_bridge(request.machine, places)) {
      TableRequest via_host_request = table;
      via_host_request.cpu_plans_only = true;
      helpers = via_host_table(request, places, via_host_request).options;
      linked = machine_of_ranks(request.machine, places, false);
      table.machine = &linked;
      table.simulation = quick_simulation(request.nranks);
    }
    plans.table = build_gpu_table(table, request.config.packet_bytes, helpers);
    plans.table.machine = fmt::format("{} ranks on {} GPUs, whose thresholds are measured",
                                      request.nranks, table.setting.cores);
    return plans;
  }
  plans.table = table.machine != nullptr
                    ? simulated_table(request.config, table, plans.schedules->fingerprint())
                    : build_table(table);
  ask_tuner(request.config, request.nranks, request.hosts, request.communicator, plans.table);
  plans.table.machine =
      table.machine != nullptr
          ? fmt::format("{} ({} of its {} GPUs)", request.config.topo, request.nranks,
                        gpus(emulated).size())
          : fmt::format("{} ranks on {} core{} of {} host{}", request.nranks, request.setting.cores,
                        request.setting.cores == 1 ? "" : "s", request.hosts,
                        request.hosts == 1 ? "" : "s");
  return plans;
}

}  // namespace weft
