// Everything that makes a Schedule from a formula. A generator is pure: same request, same
// schedule.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "src/schedule/schedule.h"

namespace weft {

// Every two ranks have so many. A generator that needs more is used on demand only.
inline constexpr int kUsualChannels = 2;

struct Generator {
  std::string_view name;
  std::string_view summary;
  bool (*supports)(const Collective& collective);
  // `in_place` says that input and output overlap, so that reads must come before writes.
  Schedule (*make)(const Collective& collective, bool in_place);
  bool peer_memory = false;  // ranks load and store in each other's memory; else they send messages
  int channels = kUsualChannels;  // most that it uses between two ranks
  int cpu_nodes = 0;              // see Schedule; such plans need ranks that share a host
};

// All generators, in the order in which tools list them.
std::span<const Generator> generators();
const Generator* find_generator(std::string_view name);

// The generators themselves; see the file of the same name.
extern const Generator kDirect, kOneRound, kOneShot, kRing, kTree, kRecursive, kPairwise, kSendRecv,
    kPeerMemory, kSweep, kViaScratch, kMultiConnection, kCpuReduce, kCpuPair;

}  // namespace weft
