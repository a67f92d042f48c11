// The list of generators.
#include "algorithms/generators/generators.h"

#include <array>

namespace weft {

std::span<const Generator> generators() {
  static const std::array<Generator, 17> all = {
      kDirect,     kOneRound,        kOneShot,      kRing,      kTree,       kRecursive,
      kHalving,    kChain,           kPairwise,     kSendRecv,  kPeerMemory, kSweep,
      kViaScratch, kMultiConnection, kHierarchical, kCpuReduce, kCpuPair};
  return all;
}

const Generator* find_generator(std::string_view name) {
  for (const Generator& generator : generators())
    if (generator.name == name) return &generator;
  return nullptr;
}

}  // namespace weft
