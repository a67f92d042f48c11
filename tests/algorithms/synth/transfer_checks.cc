// See transfer_checks.h.
#include "tests/algorithms/synth/transfer_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace weft::test {
namespace {

bool single_block(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

int blocks(const Collective& c) {
  if (single_block(c.kind)) return 1;
  return c.kind == CollectiveKind::kAllToAll ? c.nranks * c.nranks : c.nranks;
}

int origin(const Collective& c, int block) {
  switch (c.kind) {
    case CollectiveKind::kAllToAll:
      return block / c.nranks;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kScatter:
      return c.root;
    default:
      return block;
  }
}

bool needed(const Collective& c, int block, int rank) {
  switch (c.kind) {
    case CollectiveKind::kAllToAll:
      return rank == block % c.nranks;
    case CollectiveKind::kGather:
      return rank == c.root;
    case CollectiveKind::kScatter:
      return rank == block;
    default:
      return true;
  }
}

// Mirrored transfers cross their links from end to beginning.
std::string path_error(const Machine& machine, const Transfer& t, bool mirrored) {
  const std::vector<int> nodes = gpus(machine);
  int at = nodes[t.from];
  for (const int32_t l : t.links) {
    const Link& link = machine.links[l];
    if ((mirrored ? link.to : link.from) != at)
      return fmt::format("piece {}: link {} does not begin at {}", t.piece, l,
                         machine.nodes[at].id);
    at = mirrored ? link.from : link.to;
    if (machine.nodes[at].type == NodeType::kGpu && at != nodes[t.to])
      return fmt::format("piece {} passes GPU {}", t.piece, machine.nodes[at].id);
  }
  if (at != nodes[t.to]) return fmt::format("piece {} ends at {}", t.piece, machine.nodes[at].id);
  return {};
}

std::string error(const Machine& machine, const Collective& c, int chunks,
                  std::vector<Transfer> transfers, bool mirrored) {
  std::stable_sort(transfers.begin(), transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.begin_us < b.begin_us; });
  std::set<std::pair<int, int>> has;  // piece, rank
  for (int p = 0; p < blocks(c) * chunks; p++) has.insert({p, origin(c, p / chunks)});
  for (const Transfer& t : transfers) {
    if (std::string wrong = path_error(machine, t, mirrored); !wrong.empty()) return wrong;
    if (!has.contains({t.piece, t.from}))
      return fmt::format("rank {} sends piece {} before it has it", t.from, t.piece);
    if (!has.insert({t.piece, t.to}).second)
      return fmt::format("rank {} gets piece {} twice", t.to, t.piece);
  }
  for (int p = 0; p < blocks(c) * chunks; p++)
    for (int r = 0; r < c.nranks; r++)
      if (needed(c, p / chunks, r) && !has.contains({p, r}))
        return fmt::format("rank {} never gets piece {}", r, p);
  return {};
}

}  // namespace

std::string transfer_error(const Machine& machine, const Routing& routing) {
  const Collective& c = routing.collective;
  const bool both = c.kind == CollectiveKind::kAllReduce;
  std::string wrong = error(machine, c, routing.chunks, routing.transfers, c.reduces() && !both);
  if (!both || !wrong.empty()) return wrong;
  return error(machine, c, routing.chunks, routing.reduction, true);
}

double load_algbw(const Machine& machine, const Routing& routing) {
  std::map<int, double> load;  // pieces per GB/s
  for (const auto* transfers : {&routing.transfers, &routing.reduction})
    for (const Transfer& t : *transfers)
      for (const int32_t l : t.links) load[l] += 1 / machine.links[l].gbps;
  double worst = 0;
  for (const auto& [link, busy] : load) worst = std::max(worst, busy);
  const double pieces = single_block(routing.collective.kind) ? 1 : routing.collective.nranks;
  return pieces * routing.chunks / worst;
}

}  // namespace weft::test
