// CPU nodes reduce for the ranks beside them. Every rank sends its data into host memory once and
// gets the result back once. A ring would pass partial sums through the host bridge. Only FIFOs
// hold data on the way, so slices of any array stream through.
//
// Every chunk has its own channel, its own lanes, and one CPU node that completes it. The other
// nodes send that node the sums of their ranks, and forward its result. The same node completes a
// sum for all ranks, so all ranks get the same bits.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

// The cores of a CPU share lanes. This many lanes reduce about as fast as memory allows.
constexpr int kCpuChannels = 4;

// Ranks are assigned to nodes in order, as on sockets. Every chunk has two lanes everywhere. A rank
// sends on the first and receives on the second. The node that completes the sum uses only the
// first. The other nodes use one lane per direction.
class Builder {
 public:
  Builder(const char* name, const Collective& c, int nodes)
      : c_(c), nodes_(nodes), s_(blank(name, c, kCpuChannels, 0)) {
    s_.cpu_nodes = nodes;
    s_.ranks.resize(static_cast<size_t>(c.nranks + nodes));
    for (RankSchedule& rank : s_.ranks) rank.lanes.resize(2 * kCpuChannels);
  }

  Schedule build() {
    const int blocks = c_.kind == CollectiveKind::kReduceScatter ? c_.nranks : 1;
    for (int chunk = 0; chunk < kCpuChannels; chunk++)
      for (int block = 0; block < blocks; block++) move(block, chunk);
    for (RankSchedule& rank : s_.ranks)
      std::erase_if(rank.lanes, [](const Lane& lane) { return lane.steps.empty(); });
    return std::move(s_);
  }

 private:
  int node_of(int rank) const { return rank * nodes_ / c_.nranks; }
  bool gets(int rank, int block) const {
    return c_.kind == CollectiveKind::kAllReduce ||
           rank == (c_.kind == CollectiveKind::kReduce ? c_.root : block);
  }
  Lane& lane(int rank, int chunk, int which) {
    return s_.ranks[static_cast<size_t>(rank)].lanes[static_cast<size_t>(2 * chunk + which)];
  }

  void move(int block, int chunk) {
    const int n = c_.nranks, last = chunk % nodes_;
    Operands all, answers;  // for the node that completes the sum
    for (int node = 0; node < nodes_; node++) {
      Operands from, to;
      for (int r = 0; r < n; r++) {
        if (node_of(r) != node) continue;
        const Operand mine = Operand::peer(n + node, chunk);
        add(lane(r, chunk, 0), {Operand::input(block * kCpuChannels + chunk)}, {mine});
        from.push_back(Operand::peer(r, chunk));
        if (!gets(r, block)) continue;
        add(lane(r, chunk, 1), {mine}, {Operand::output(chunk)});
        to.push_back(Operand::peer(r, chunk));
      }
      if (node != last) {
        const Operand completer = Operand::peer(n + last, chunk);
        add(lane(n + node, chunk, 0), std::move(from), {completer});
        from = {Operand::peer(n + node, chunk)};
        if (!to.empty()) {
          add(lane(n + node, chunk, 1), {completer}, std::move(to));
          to = from;
        }
      }
      all.insert(all.end(), from.begin(), from.end());
      answers.insert(answers.end(), to.begin(), to.end());
    }
    add(lane(n + last, chunk, 0), std::move(all), std::move(answers));
  }

  const Collective c_;
  const int nodes_;
  Schedule s_;
};

bool supports_cpu_reduce(const Collective& c) {
  return (c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kReduce ||
          c.kind == CollectiveKind::kReduceScatter) &&
         c.nranks <= kMostReducedRanks;
}

Schedule make_cpu_reduce(const char* name, const Collective& c, int nodes) {
  return c.nranks == 1 ? single_rank(name, c) : Builder(name, c, nodes).build();
}

}  // namespace

const Generator kCpuReduce = {
    "cpu_reduce",
    "a CPU node reduces for all ranks: GPUs that talk over the host bridge",
    supports_cpu_reduce,
    [](const Collective& c, bool) { return make_cpu_reduce("cpu_reduce", c, 1); },
    false,
    kCpuChannels,
    1};
const Generator kCpuPair = {
    "cpu_pair",
    "two CPU nodes reduce, each for the ranks beside it",
    supports_cpu_reduce,
    [](const Collective& c, bool) { return make_cpu_reduce("cpu_pair", c, 2); },
    false,
    kCpuChannels,
    2};

}  // namespace weft
