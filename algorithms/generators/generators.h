// Generators make a Schedule from a formula. A generator is pure: same request, same schedule.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "src/schedule/schedule.h"

namespace weft {

// Every two ranks have this many. A generator that needs more is used on demand only.
inline constexpr int kUsualChannels = 2;

struct Generator {
  std::string_view name;
  std::string_view summary;
  bool (*supports)(const Collective& collective);
  // `in_place`: input and output overlap, so reads must come before writes.
  Schedule (*make)(const Collective& collective, bool in_place);
  bool peer_memory = false;  // ranks load and store in peer memory; otherwise they send messages
  int channels = kUsualChannels;  // most between two ranks
  int cpu_nodes = 0;              // see Schedule; such plans need all ranks on one host
  // Set if the schedule depends on the host of every rank.
  Schedule (*make_for_hosts)(const Collective& collective, std::span<const int> hosts) = nullptr;
  bool between_hosts = false;  // only for ranks on several hosts; make() assumes some

  // `hosts`: the host of every rank; empty: not known.
  Schedule make_on(std::span<const int> hosts, const Collective& collective, bool in_place) const {
    return make_for_hosts != nullptr && !hosts.empty() ? make_for_hosts(collective, hosts)
                                                       : make(collective, in_place);
  }
};

// All generators, in the order of the tools' lists.
std::span<const Generator> generators();
const Generator* find_generator(std::string_view name);

// The generators; most are in the file of the same name.
extern const Generator kDirect, kOneRound, kOneShot, kRing, kTree, kRecursive, kPairwise, kSendRecv,
    kPeerMemory, kSweep, kViaScratch, kMultiConnection, kHierarchical, kCpuReduce, kCpuPair,
    kHalving, kChain;
// Not among generators(): no plan is chosen for kAllToAllV.
extern const Generator kIrregular;

}  // namespace weft
