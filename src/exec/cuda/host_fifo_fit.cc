// See host_fifo_fit.h.
#include "src/exec/cuda/host_fifo_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <tuple>

#include "src/exec/cuda/device_comm.h"
#include "src/schedule/program_view.h"

namespace weft {
namespace {

constexpr auto kMost = static_cast<size_t>(cuda::kMaxRanks);

// Bytes of an array in kernel parameters, aligned as in launch_ring.cc.
size_t room(size_t count, size_t size) {
  constexpr size_t kUnit = alignof(std::max_align_t);
  return (count * size + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

std::string unfit_for_host_fifos(const Schedule& schedule) {
  if (schedule.cpu_nodes > 0 && schedule.ranks.size() > kMost)
    return fmt::format("kernels know no more than {} ranks and CPU nodes", kMost);
  const auto ranks = static_cast<size_t>(schedule.collective.nranks);
  for (const RankSchedule& rank : std::span(schedule.ranks).first(ranks)) {
    if (rank.scratch_chunks > 0) return "it needs scratch memory that grows with the array";
    size_t steps = 0, operands = 0, dependencies = 0, most = 0;
    std::set<std::tuple<bool, int, int>> ports;
    for (const Lane& lane : rank.lanes)
      for (const Step& step : lane.steps) {
        steps++;
        operands += step.from.size() + step.to.size();
        dependencies += step.after.size();
        most = std::max({most, step.from.size(), step.to.size()});
        for (const bool sends : {false, true})
          for (const Operand& o : sends ? step.to : step.from)
            if (o.kind == Operand::Kind::kPeer) ports.emplace(sends, o.index, o.channel);
      }
    const size_t bytes = room(rank.lanes.size(), sizeof(ProgramLane)) +
                         room(rank.lanes.size(), sizeof(cuda::RingJob)) +
                         room(steps, sizeof(ProgramStep)) + room(operands, sizeof(ProgramOperand)) +
                         room(dependencies, sizeof(ProgramDependency)) +
                         room(ports.size(), sizeof(void*));
    if (bytes > cuda::RingArguments::kProgramBytes || rank.lanes.size() > cuda::kMaxRingJobs ||
        most > kMost)
      return fmt::format("it does not fit into a kernel: {} steps in {} lanes", steps,
                         rank.lanes.size());
  }
  return "";
}

}  // namespace weft
