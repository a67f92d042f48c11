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
};

// All generators, in the order of the tools' lists.
std::span<const Generator> generators();
const Generator* find_generator(std::string_view name);

// The generators; most are in the file of the same name.
extern const Generator kDirect, kOneRound, kOneShot, kRing, kTree, kRecursive, kPairwise, kSendRecv,
    kPeerMemory, kSweep, kViaScratch, kMultiConnection, kHierarchical, kCpuReduce, kCpuPair;

}  // namespace weft
