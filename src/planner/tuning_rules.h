// User settings for the choice of plans: NCCL_ALGO, NCCL_PROTO, NCCL_MAX_NCHANNELS and WEFT_PLAN.
// Pure functions and plain data.
//
// NCCL's algorithms stand for families of generators. Ring is ring. Tree and NVLSTree are tree,
// recursive, halving and chain. PAT is recursive and pairwise. CollNetDirect, CollNetChain and
// NVLS, in which all ranks work at once, are direct, one_shot, one_round and peer_memory. Rings and
// chains that follow the machine (ordered_plans.h) count as ring and chain. Other schedules made
// for the machine belong to no family. They are used only if the user leaves the choice open.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/config.h"
#include "src/schedule/collective.h"

namespace weft {

// NCCL's numbers.
enum class NcclAlgorithm : int {
  kTrees,
  kRings,
  kCollNetDirect,
  kCollNetChain,
  kNvls,
  kNvlsTree,
  kPat
};
inline constexpr int kNcclAlgorithms = 7;
enum class NcclProtocol : int { kLl, kLl128, kSimple };
inline constexpr int kNcclProtocols = 3;

// Whether a generator belongs to the algorithm's family.
bool is_of(NcclAlgorithm algorithm, std::string_view generator);

// A list in NCCL's syntax: "ring,tree", "^tree" (all but), "ring;allreduce:tree,ring" (for all
// functions, then for one). Case does not matter. Has a bit per name for every function; all bits
// are set if the user said nothing. Throws Error(ncclInvalidUsage) that names the variable and the
// word.
struct NcclChoice {
  std::array<unsigned, kCollectiveKinds> allowed{};
  bool allows(CollectiveKind kind, int which) const {
    return (allowed[static_cast<size_t>(kind)] >> which & 1) != 0;
  }
  bool operator==(const NcclChoice&) const = default;
};
NcclChoice parse_nccl_algo(const std::string& text);
NcclChoice parse_nccl_proto(const std::string& text);

struct TuningRules {
  NcclChoice algorithms, protocols;
  std::string plan;      // WEFT_PLAN
  int max_channels = 0;  // 0: no limit

  static TuningRules from(const Config& config);

  // Why such a plan is not allowed for this collective; empty: it is.
  std::string bars_generator(CollectiveKind kind, std::string_view generator) const;
  std::string bars_schedule(CollectiveKind kind, std::string_view schedule, int channels) const;
};

}  // namespace weft
