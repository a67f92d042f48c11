// build_gpu_table() of table_builder.h.
#include <map>

#include "src/planner/selection.h"
#include "src/planner/table_builder.h"

namespace weft {
namespace {

// A choice of choose_for_gpu().
PlanOption gpu_option(const TableRequest& request, const GpuChoice& choice, const Collective& c) {
  PlanOption option;
  option.kind = c.kind;
  option.name = choice.generator->name;
  option.path = choice.packets ? PlanPath::kPackets : PlanPath::kLoadStore;
  const ScheduleShape shape = shape_of(step_graph(choice.generator->make(c, false)));
  option.lanes = shape.lanes;
  option.channels = shape.channels;
  option.chunks = shape.chunks;
  for (int i = 0; i < SelectionTable::kSizes; i++)
    option.us.push_back(predict(shape, c, SelectionTable::size(i), request.setting, request.rates) *
                        factor_at(request.factors, c, option.name, SelectionTable::size(i)));
  return option;
}

// What a calibration must gain over the rules: more than two measurements of a plan differ by (on
// an H200 1.6%, median).
constexpr double kGain = 0.97;

bool is_measured(const TableRequest& request) {
  return request.measured && request.setting.cores == 1;
}

// The plans of a collective, each made once.
class GpuPlans {
 public:
  GpuPlans(const TableRequest& request, const Collective& c, size_t packet_bytes)
      : request_(request), c_(c), packet_bytes_(packet_bytes) {}

  const PlanOption& option(const GpuChoice& choice) {
    const auto [it, fresh] = options_.try_emplace(choice.generator);
    if (fresh) it->second = gpu_option(request_, choice, c_);
    return it->second;
  }
  // What rules say, unless this machine was measured and another plan is faster by that.
  GpuChoice choose(uint64_t bytes, const Generator* forced) {
    const bool together = request_.setting.cores == 1 && request_.setting.one_process;
    GpuChoice best = choose_for_gpu(c_, bytes, packet_bytes_, forced, together);
    if (forced != nullptr || !is_measured(request_) || !measured(best)) return best;
    const auto us = [&](const GpuChoice& choice) {
      return SelectionTable::estimate(option(choice), static_cast<double>(bytes));
    };
    const double by_rules = us(best);
    // Packets where they are allowed at all, then loads.
    for (const size_t packets : {packet_bytes_, size_t{0}}) {
      const GpuChoice other = choose_for_gpu(c_, bytes, packets, nullptr, together && packets == 0);
      if (measured(other) && us(other) < std::min(kGain * by_rules, us(best))) best = other;
    }
    return best;
  }

 private:
  bool measured(const GpuChoice& choice) const {
    return request_.factors.contains(factor_key(c_.kind, choice.generator->name));
  }
  const TableRequest& request_;
  const Collective c_;
  const size_t packet_bytes_;
  std::map<const Generator*, PlanOption> options_;
};

}  // namespace

SelectionTable build_gpu_table(const TableRequest& request, size_t packet_bytes) {
  SelectionTable table;
  table.origin = request.origin;
  table.advisory = true;
  table.measured = is_measured(request);
  for (int k = 0; k < kCollectiveKinds; k++) {
    const Collective c{static_cast<CollectiveKind>(k), request.nranks, 0};
    if (c.kind == CollectiveKind::kSendRecv || request.nranks < 2 ||
        request.nranks > kMostTableRanks)
      continue;
    const Generator* forced = forced_generator(c.kind, request.rules.plan);
    // Not for a forced plan with CPU nodes: it is not known yet whether GPUs reach each other.
    if (forced != nullptr && (!forced->supports(c) || forced->cpu_nodes > 0)) continue;
    GpuPlans plans(request, c, packet_bytes);
    std::vector<SelectionTable::Range> ranges;
    const Generator* last = nullptr;
    for (int power = 0; power <= 32; power++) {
      const auto bytes = uint64_t{1} << power;
      const GpuChoice choice = plans.choose(bytes, forced);
      if (choice.generator != last) {
        ranges.push_back({0, static_cast<int>(table.options.size())});
        table.options.push_back(plans.option(choice));
        last = choice.generator;
      }
      ranges.back().most_bytes = power == 32 ? ~uint64_t{0} : bytes * 2 - 1;
    }
    table.set_ranges(c.kind, std::move(ranges));
  }
  return table;
}

}  // namespace weft
