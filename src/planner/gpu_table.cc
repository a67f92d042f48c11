// build_gpu_table() of table_builder.h.
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

}  // namespace

SelectionTable build_gpu_table(const TableRequest& request, size_t packet_bytes) {
  SelectionTable table;
  table.origin = request.origin;
  table.advisory = true;
  for (int k = 0; k < kCollectiveKinds; k++) {
    const Collective c{static_cast<CollectiveKind>(k), request.nranks, 0};
    if (c.kind == CollectiveKind::kSendRecv || request.nranks < 2 ||
        request.nranks > kMostTableRanks)
      continue;
    const Generator* forced = forced_generator(c.kind, request.rules.plan);
    // Not for a forced plan with CPU nodes: it is not known yet whether GPUs reach each other.
    if (forced != nullptr && (!forced->supports(c) || forced->cpu_nodes > 0)) continue;
    std::vector<SelectionTable::Range> ranges;
    const Generator* last = nullptr;
    for (int power = 0; power <= 32; power++) {
      const auto bytes = uint64_t{1} << power;
      const GpuChoice choice =
          choose_for_gpu(c, bytes, packet_bytes, forced,
                         request.setting.cores == 1 && request.setting.one_process);
      if (choice.generator != last) {
        ranges.push_back({0, static_cast<int>(table.options.size())});
        table.options.push_back(gpu_option(request, choice, c));
        last = choice.generator;
      }
      ranges.back().most_bytes = power == 32 ? ~uint64_t{0} : bytes * 2 - 1;
    }
    table.set_ranges(c.kind, std::move(ranges));
  }
  return table;
}

}  // namespace weft
