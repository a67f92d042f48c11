// Which calls of a communicator travel compressed between hosts, and with which codec: what
// WEFT_COMPRESS and weftCommSetCompression() say, and the plans that follow from it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/planner/compression_scope.h"
#include "src/planner/imported_schedules.h"
#include "src/schedule/codec.h"

namespace weft {

inline constexpr CollectiveKind kCompressedKinds[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter};

struct CompressionRule {
  CodecSpec codec;
  bool feedback = false;  // what an encoding loses is added to the next call's data
  bool operator==(const CompressionRule&) const = default;
};

struct CompressionSettings {
  // Compressed only where that is faster, as measured.
  bool automatic = false;
  bool imported = false;  // imported schedules may use whatever codecs they have
  std::array<std::optional<CompressionRule>, kCollectiveKinds> rules;

  bool has_rules() const;
  bool off() const { return !imported && !has_rules(); }
  // "off", "auto" or "all_gather=int8,reduce_scatter=int4:block=128:feedback,imported". Throws
  // Error(ncclInvalidArgument).
  static CompressionSettings parse(std::string_view text);
};

// The part of WEFT_COMPRESS that is for a communicator of this name (may be empty). The parts have
// ';' between them; the first that fits counts. "dp/all_reduce=int8;off" is for those called dp,
// and all others are off. Nothing fits: "off".
std::string compression_for(std::string_view variable, std::string_view communicator);

// Where ranks are: a number per rank for its host, and one for its machine.
struct RankHomes {
  std::vector<int> hosts, machines;
  // Whether links between hosts are of both classes.
  bool mixed() const;
};

// The compressed plans of a communicator. Immutable but for what was logged; any thread may call.
class CompressedPlans {
 public:
  // `asked`: an explicit call asked for it; calls that cannot be compressed are errors then. Rank 0
  // logs (`tells`).
  CompressedPlans(const CompressionSettings& settings, const RankHomes& places, bool asked,
                  bool tells, const CompressionScopes& scopes = {});

  // The plan of a call, and its rule. nullptr: it is not compressed. Throws
  // Error(ncclInvalidArgument) for types and operators that an explicit call does not allow.
  struct Found {
    const ImportedSchedule* plan = nullptr;
    const CompressionRule* rule = nullptr;
  };
  Found find(const PlanCall& call) const;
  // The rule by which an imported schedule with lossy codecs may run; nullptr: it may not.
  const CompressionRule* permits(const ImportedSchedule& schedule) const;
  // A call that would be compressed takes a forced plan. Rank 0 warns once.
  void tell_forced(const PlanCall& call, std::string_view plan) const;

  const CompressionSettings& settings() const { return settings_; }
  bool any() const;

 private:
  const CompressionSettings settings_;
  const bool asked_, tells_;
  const CompressionScopes scopes_;
  std::array<std::shared_ptr<const ImportedSchedule>, kCollectiveKinds> plans_;
  const CompressionRule by_import_{};  // of imported schedules that no other rule is for
  mutable std::atomic<bool> logged_{false}, logged_forced_{false};
};

}  // namespace weft
