// The selection table of a communicator: for every collective, which plan at which size, and the
// predicted times of all plans. Rank 0 builds the table. All ranks use a copy, so they choose
// alike. Plain data; any thread may read a finished table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/schedule/collective.h"

namespace weft {

// How a plan moves data.
enum class PlanPath : uint8_t {
  kFifos,        // messages through FIFOs in host memory
  kLanes,        // GPUs: messages, pair by pair through peer memory or host memory
  kPackets,      // GPUs: packets with flags beside the data, as in NCCL's LL
  kLoadStore,    // GPUs: loads and stores in peer memory
  kCopyEngines,  // GPUs: copy engines move the data
};
// "lanes", "packets": as tools print it.
std::string_view name_of(PlanPath path);

// One way to do a collective.
struct PlanOption {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string name;  // of the generator or synthesized schedule
  // The number of a schedule made for the machine; -1: a generator makes it.
  static constexpr int kNotKept = -2;  // a schedule that no size chooses
  int schedule = -1;
  PlanPath path = PlanPath::kFifos;
  int lanes = 0;           // most of any rank
  int channels = 0;        // most between two ranks
  int chunks = 1;          // per block
  std::string barred;      // why it must not be chosen; empty: it may be
  std::vector<double> us;  // predicted time for each size of the table; empty: unknown
  bool operator==(const PlanOption&) const = default;
};

class SelectionTable {
 public:
  // The sizes for which times are predicted, in bytes of the whole array. Other sizes are
  // interpolated.
  static constexpr int kSizes = 23;
  static double size(int i) { return static_cast<double>(uint64_t{256} << i); }

  std::string machine;                     // the machine, in words
  std::string origin;                      // where the costs come from, in words
  double slice_bytes = 0, lend_bytes = 0;  // as in HostSetting; 0: unknown
  bool advisory = false;  // rules (choose_for_gpu()) decide, except for plans with CPU nodes
  // Ranks like these were measured here: where the table has another plan than the rules, it runs.
  bool measured = false;
  std::string via_host;  // why data of GPUs goes through host memory; empty: init finds out
  std::vector<PlanOption> options;

  // The option for sizes up to `most_bytes`, from the end of the range before.
  struct Range {
    uint64_t most_bytes = 0;
    int option = 0;
    bool operator==(const Range&) const = default;
  };

  // Computes the ranges from the options. A range ends only where another option is more than 2%
  // faster.
  void find_ranges();
  // Replaces the ranges of a collective, until the next find_ranges().
  void set_ranges(CollectiveKind kind, std::vector<Range> ranges);
  const std::vector<Range>& ranges(CollectiveKind kind) const {
    return ranges_[static_cast<size_t>(kind)];
  }
  // nullptr: the table has no ranges for the collective. `generators_only`: ignores synthesized
  // schedules and kernels that need access between all GPUs, for calls that they do not fit.
  const PlanOption* choose(CollectiveKind kind, uint64_t bytes, bool generators_only) const;

  // Whether choose() returns the option for some size.
  bool chooses(int option) const;

  // Microseconds; 0: unknown.
  static double estimate(const PlanOption& option, double bytes);

  // The table as text, for other ranks. decode() throws Error if the text is malformed.
  std::string encode() const;
  static SelectionTable decode(std::string_view text);

  bool operator==(const SelectionTable&) const = default;

 private:
  std::vector<Range> best_ranges(CollectiveKind kind, bool generators_only) const;

  std::array<std::vector<Range>, kCollectiveKinds> ranges_, generator_ranges_;
};

// The ranges of a collective as text for users, one line each, with the times of other options.
std::string describe_ranges(const SelectionTable& table, CollectiveKind kind);
// The time of every option of a collective at one size, the fastest first. `chosen` is marked.
std::string describe_options(const SelectionTable& table, CollectiveKind kind, uint64_t bytes,
                             const PlanOption* chosen);
// "16K", "1M"
std::string size_text(uint64_t bytes);

}  // namespace weft
