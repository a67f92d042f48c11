// See table_builder.h.
#include "src/planner/table_builder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <span>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/planner/selection.h"
#include "src/schedule/program.h"
#include "src/simulator/lane_simulation.h"

namespace weft {
namespace {

// Whether the generator's programs run on the FIFOs that every communicator has.
bool has_fifos(const Generator& generator) {
  return !generator.peer_memory && generator.name != kSendRecv.name &&
         generator.channels <= kUsualChannels && !generator.between_hosts;
}

// Simulations take time, so only these sizes are simulated, up to 64 MiB, and of lanes up to 1 GiB.
// Times between and beyond them are linear. While a message fits one slice, times are nearly
// linear.
constexpr int kSimulatedSizes[] = {0, 10, 14, 18}, kFewSimulatedSizes[] = {0, 14, 18};
constexpr int kLaneSizes[] = {0, 10, 14, 18, 22}, kFewLaneSizes[] = {0, 14, 22};
constexpr int kAllLaneSizes[] = {0, 6, 10, 12, 14, 16, 18, 22};  // with patience
constexpr int kManyRanks = 32;  // with more ranks, chunks are small

// How a plan is simulated.
struct Manner {
  SimulationOptions options;
  double bytes_sent = 1;  // per byte of data; packets have as many bytes of flags as of data
  const LaneCut* lanes = nullptr;
};

double simulated_time(SimulatedMachine& simulated, const ScheduleGraph& graph, double bytes,
                      const Manner& manner) {
  const double sent = bytes * manner.bytes_sent;
  return (manner.lanes != nullptr
              ? simulate_lanes(simulated, graph, sent, *manner.lanes, manner.options)
              : simulate(simulated, graph, sent, manner.options))
      .time_us;
}

// The times at all sizes of a table.
std::vector<double> simulated_times(const TableRequest& request, const ScheduleGraph& graph,
                                    SimulatedMachine& simulated, const Manner& manner) {
  std::span<const int> sizes = request.lanes ? std::span<const int>(kLaneSizes) : kSimulatedSizes;
  if (request.lanes && request.patient) sizes = kAllLaneSizes;
  if (request.nranks > kManyRanks)
    sizes = request.lanes ? std::span<const int>(kFewLaneSizes) : kFewSimulatedSizes;
  std::vector<double> known, us;
  for (const int i : sizes)
    known.push_back(request.call_us + (manner.lanes != nullptr ? request.lane_start_us : 0) +
                    simulated_time(simulated, graph, SelectionTable::size(i), manner));
  for (int i = 0; i < SelectionTable::kSizes; i++) {
    size_t k = 0;
    while (k + 2 < known.size() && sizes[k + 1] < i) k++;
    const double low = SelectionTable::size(sizes[k]), high = SelectionTable::size(sizes[k + 1]);
    const double share = (SelectionTable::size(i) - low) / (high - low);
    us.push_back(known[k] + (known[k + 1] - known[k]) * share);
  }
  return us;
}

// The origin of an option: a generator, with or without CPU nodes, or a synthesized schedule.
struct Source {
  const Generator* generator = nullptr;
  Collective collective{};
  const ImportedSchedule* schedule = nullptr;
  bool same_as_direct = false;
};

class Builder {
 public:
  explicit Builder(const TableRequest& request) : request_(request) {
    if (request.machine == nullptr || request.lanes)
      hierarchy_ = hosts_of_hierarchy(request.setting.hosts);
  }

  SelectionTable build() {
    table_.origin = request_.origin;
    table_.slice_bytes = request_.machine != nullptr ? request_.simulation.slice_bytes
                                                     : request_.setting.slice_bytes;
    table_.lend_bytes = request_.setting.lend_bytes;
    if (request_.nranks < 2 || request_.nranks > kMostTableRanks) return table_;
    for (int k = 0; k < kCollectiveKinds; k++) {
      const Collective c{static_cast<CollectiveKind>(k), request_.nranks, 0};
      if (c.kind == CollectiveKind::kSendRecv) {
        if (!request_.cpu_plans_only) add(kSendRecv, {c.kind, 2, 0}, request_.path);
        continue;
      }
      for (const Generator& generator : generators()) {
        if (!generator.supports(c)) continue;
        // They take long to simulate, and win where links are many.
        if ((generator.name == kChain.name || generator.name == kHalving.name) && !request_.lanes)
          continue;
        const bool for_hosts = generator.between_hosts && !hierarchy_.empty();
        if ((has_fifos(generator) || for_hosts) && !request_.cpu_plans_only)
          add(generator, c, request_.path);
        // Beside lanes their steps cost something else: the caller adds them.
        if (generator.cpu_nodes > 0 && request_.machine != nullptr && !request_.lanes &&
            cpus_could_help(*request_.machine, generator.cpu_nodes))
          add_with_cpus(generator, c);
      }
      if (request_.kernels) add_kernels(c);
    }
    for (size_t i = 0; i < request_.schedules.size(); i++)
      add(*request_.schedules[i], static_cast<int>(i));
    find_costs();
    if (!request_.cpu_plans_only) lift_empty_bars();  // otherwise the caller has other plans
    table_.find_ranges();
    if (request_.machine == nullptr && !request_.setting.hosts.empty()) follow_rules();
    return table_;
  }

 private:
  // A single round of packets, a tree of packets, or loads and stores in peer memory.
  void add_kernels(const Collective& c) {
    const Generator& round = c.kind == CollectiveKind::kAllReduce ? kOneShot : kOneRound;
    for (const Generator* generator : {&round, &kTree})
      if (request_.packets && generator->supports(c) &&
          (generator != &kTree || c.kind == CollectiveKind::kBroadcast))
        add(*generator, c, PlanPath::kPackets);
    if (kPeerMemory.supports(c)) add(kPeerMemory, c, PlanPath::kLoadStore);
  }

  void add(const Generator& generator, const Collective& c, PlanPath path) {
    PlanOption& option = table_.options.emplace_back();
    option.kind = c.kind;
    option.name = generator.name;
    option.path = path;
    option.barred = request_.rules.bars_generator(c.kind, generator.name);
    // one_round sends the same messages as direct, so its time on links is the same.
    const bool only_links = request_.machine != nullptr && request_.simulation.step_us == 0 &&
                            request_.simulation.message_us == 0 && path == request_.path;
    sources_.push_back({&generator, c, nullptr, only_links && generator.name == kOneRound.name});
  }

  void add(const ImportedSchedule& schedule, int number) {
    PlanOption& option = table_.options.emplace_back();
    option.kind = schedule.collective.kind;
    option.name = schedule.path;
    option.schedule = number;
    option.path = request_.path;
    sources_.push_back({nullptr, schedule.collective, &schedule});
  }

  // If there can be no CPU nodes, the option is listed without its costs.
  void add_with_cpus(const Generator& generator, const Collective& c) {
    PlanOption& option = table_.options.emplace_back();
    option.kind = c.kind;
    option.name = generator.name;
    // This bar comes first. lift_empty_bars() lifts only bars of NCCL_ALGO.
    option.barred = request_.setting.no_cpu_nodes;
    if (option.barred.empty())
      option.barred = request_.rules.bars_generator(c.kind, generator.name);
    if (request_.rules.max_channels > 0 && generator.channels > request_.rules.max_channels)
      option.barred = "NCCL_MAX_NCHANNELS";
    sources_.push_back({&generator, c});
  }

  // Options are independent of each other. The last options start first, because synthesized
  // schedules have the most steps.
  void find_costs() {
    const auto make_worker = [&] {
      // Each thread has its own SimulatedMachine, which looks up paths between GPUs.
      auto simulated = request_.machine != nullptr
                           ? std::make_unique<SimulatedMachine>(*request_.machine)
                           : nullptr;
      return [this, simulated = std::move(simulated)](size_t piece) {
        const size_t i = sources_.size() - 1 - piece;
        if (!sources_[i].same_as_direct) find_cost(table_.options[i], sources_[i], simulated.get());
      };
    };
    parallel_for(sources_.size(), make_worker);
    for (size_t i = 0; i < sources_.size(); i++)
      if (sources_[i].same_as_direct) copy_direct(table_.options[i]);
  }

  void copy_direct(PlanOption& option) const {
    for (const PlanOption& direct : table_.options) {
      if (direct.kind != option.kind || direct.name != kDirect.name || direct.path != option.path)
        continue;
      option.lanes = 1;
      option.channels = direct.channels;
      option.chunks = direct.chunks;
      option.us = direct.us;
      if (direct.us.empty()) option.barred = direct.barred;
    }
  }

  void find_cost(PlanOption& option, const Source& source, SimulatedMachine* simulated) const {
    if (source.schedule != nullptr) {
      const auto& verified = source.schedule->out_of_place != nullptr
                                 ? source.schedule->out_of_place
                                 : source.schedule->in_place;
      predict_option(option, verified->schedule(), simulated);
      const std::string why =
          request_.rules.bars_schedule(option.kind, option.name, option.channels);
      if (!why.empty()) option.barred = why;
    } else if (source.generator->cpu_nodes > 0) {
      predict_with_cpus(option, source.generator->make(source.collective, false));
    } else {
      predict_option(option, source.generator->make_on(hierarchy_, source.collective, false),
                     simulated);
      count_other_root(option, source, simulated);
    }
  }

  // Generators serve all roots, and some cross hosts once from root 0 and many times from others.
  // So the slower of two roots counts.
  void count_other_root(PlanOption& option, const Source& source,
                        SimulatedMachine* simulated) const {
    Collective other = source.collective;
    other.root = other.nranks / 2 - 1;
    if (!other.rooted() || other.root < 1 || other.nranks > kManyRanks || simulated == nullptr ||
        option.us.empty())
      return;
    PlanOption rotated = option;
    predict_option(rotated, source.generator->make_on(hierarchy_, other, false), simulated);
    for (size_t i = 0; i < std::min(option.us.size(), rotated.us.size()); i++)
      option.us[i] = std::max(option.us[i], rotated.us[i]);
  }

  // Between hosts the measured thresholds of selection.h come before the cost model. Default rates
  // do not fit every network, and calibration sees only this host's side. If the user bars the
  // choice of the rules, the model decides.
  void follow_rules() {
    Placement placement;
    placement.one_host = placement.one_process = false;
    placement.hosts = hierarchy_;
    placement.own_hosts =
        std::set<int>(request_.setting.hosts.begin(), request_.setting.hosts.end()).size() ==
        static_cast<size_t>(request_.nranks);
    for (int k = 0; k < kCollectiveKinds; k++) {
      const Collective c{static_cast<CollectiveKind>(k), request_.nranks, 0};
      if (c.kind == CollectiveKind::kSendRecv || table_.ranges(c.kind).empty()) continue;
      std::vector<SelectionTable::Range> ranges;
      for (int power = 8; power <= 32; power++) {
        const uint64_t most = power == 32 ? ~uint64_t{0} : uint64_t{1} << power;
        const Generator& ruled = choose_generator(c, uint64_t{1} << power, placement, nullptr);
        const auto it = std::find_if(
            table_.options.begin(), table_.options.end(), [&](const PlanOption& option) {
              return option.kind == c.kind && option.barred.empty() && option.name == ruled.name;
            });
        const PlanOption* option =
            it != table_.options.end() ? &*it : table_.choose(c.kind, most, false);
        const auto number = static_cast<int>(option - table_.options.data());
        if (!ranges.empty() && ranges.back().option == number) {
          ranges.back().most_bytes = most;
        } else {
          ranges.push_back({most, number});
        }
      }
      table_.set_ranges(c.kind, std::move(ranges));
    }
    table_.origin += "; between hosts measured thresholds decide";
  }

  void predict_with_cpus(PlanOption& option, const Schedule& schedule) const {
    const ScheduleGraph graph = step_graph(schedule);
    take_shape(option, shape_of(graph));
    // A plan that cannot run gets no costs. A plan that the user bars does, for `weft explain`.
    if (!request_.setting.no_cpu_nodes.empty() || cannot_run(option, schedule)) return;
    try {
      const Machine helped = with_cpu_nodes(*request_.machine, schedule, request_.cpus);
      SimulatedMachine simulated(helped);
      simulate_option(option, graph, simulated);
    } catch (const Error& error) {
      option.us.clear();
      option.barred = error.what();
    }
  }

  void predict_option(PlanOption& option, const Schedule& schedule,
                      SimulatedMachine* simulated) const {
    try {
      const ScheduleGraph graph = step_graph(schedule);
      const ScheduleShape shape = shape_of(graph, request_.setting.hosts);
      take_shape(option, shape);
      if (cannot_run(option, schedule)) return;
      if (simulated != nullptr) {
        simulate_option(option, graph, *simulated);
      } else {
        for (int i = 0; i < SelectionTable::kSizes; i++)
          option.us.push_back(predict(shape, schedule.collective, SelectionTable::size(i),
                                      request_.setting, request_.rates) *
                              factor_at(request_.factors, schedule.collective, option.name,
                                        SelectionTable::size(i)));
      }
    } catch (const Error& error) {
      option.us.clear();
      option.barred = error.what();
    }
  }

  bool cannot_run(PlanOption& option, const Schedule& schedule) const {
    // Kernels for special shapes do not use FIFOs.
    if (option.path == PlanPath::kPackets || option.path == PlanPath::kLoadStore) return false;
    const std::string why = request_.unfit ? request_.unfit(schedule) : "";
    if (!why.empty()) option.barred = why;
    return !why.empty();
  }

  static void take_shape(PlanOption& option, const ScheduleShape& shape) {
    option.lanes = shape.lanes;
    option.channels = shape.channels;
    option.chunks = shape.chunks;
  }

  void simulate_option(PlanOption& option, const ScheduleGraph& graph,
                       SimulatedMachine& simulated) const {
    const bool kernel = option.path == PlanPath::kPackets || option.path == PlanPath::kLoadStore;
    const Manner manner{kernel ? *request_.kernels : request_.simulation,
                        option.path == PlanPath::kPackets ? 2.0 : 1.0,
                        kernel || !request_.lanes ? nullptr : &*request_.lanes};
    option.us = simulated_times(request_, graph, simulated, manner);
    const Generator& single = option.kind == CollectiveKind::kAllReduce ? kOneShot : kOneRound;
    if (request_.one_round_us == 0 || option.name != single.name) return;
    const double n = request_.nranks;
    const bool whole = option.kind == CollectiveKind::kAllReduce ||
                       option.kind == CollectiveKind::kReduce ||
                       option.kind == CollectiveKind::kBroadcast;
    for (int i = 0; i < SelectionTable::kSizes; i++) {
      const double message = SelectionTable::size(i) / (whole ? 1 : n);
      // The message must also fit one slice.
      if (message > std::min<double>(kMostOneRoundBytes, request_.simulation.slice_bytes)) break;
      option.us[static_cast<size_t>(i)] =
          request_.one_round_us + message * (n - 1) * 1e-6 * request_.one_round_us_mb;
    }
  }

  // NCCL_ALGO may bar all plans of a collective. Users of NCCL mean it only for collectives that
  // have the algorithm. So it is ignored for the collective, and a log line says so.
  void lift_empty_bars() {
    for (int k = 0; k < kCollectiveKinds; k++) {
      bool any = false, barred = false;
      for (const PlanOption& option : table_.options) {
        if (static_cast<int>(option.kind) != k || option.us.empty()) continue;
        any = any || option.barred.empty();
        barred = barred || option.barred == "NCCL_ALGO";
      }
      if (any || !barred) continue;
      WEFT_INFO(kTuning, "NCCL_ALGO leaves no plan for {}: it does not count there",
                name(static_cast<CollectiveKind>(k)));
      for (PlanOption& option : table_.options)
        if (static_cast<int>(option.kind) == k && option.barred == "NCCL_ALGO") option.barred = "";
    }
  }

  const TableRequest& request_;
  SelectionTable table_;
  std::vector<Source> sources_;  // per option of the table
  std::vector<int> hierarchy_;   // Placement::hosts
};

}  // namespace

SelectionTable build_table(const TableRequest& request) { return Builder(request).build(); }

}  // namespace weft
