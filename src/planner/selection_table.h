// The selection table of a communicator: for every collective, which plan at which size, with the
// time it should take, and what the others would cost. Rank 0 builds it, all ranks use its copy, so
// they choose alike. Plain data; any thread may ask a finished table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/schedule/collective.h"

namespace weft {

// One way to do a collective.
struct PlanOption {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string name;        // a generator's, or a synthesized schedule's
  int schedule = -1;       // number of the synthesized schedule; -1: a generator
  int lanes = 0;           // of a rank at most
  int channels = 0;        // between two ranks at most
  int chunks = 1;          // per block
  std::string barred;      // why it is not chosen; empty: it may be
  std::vector<double> us;  // predicted, for the sizes of the table; empty: unknown
  bool operator==(const PlanOption&) const = default;
};

class SelectionTable {
 public:
  // Bytes of the whole array at which options are predicted. What lies between is interpolated.
  static constexpr int kSizes = 23;
  static double size(int i) { return static_cast<double>(uint64_t{256} << i); }

  std::string machine;                     // what it is for, in words
  std::string origin;                      // where the costs come from, in words
  double slice_bytes = 0, lend_bytes = 0;  // as HostSetting has them; 0: not known
  bool advisory = false;  // it says what others decide by rules of their own: GPUs do
  std::string via_host;   // why data of GPUs goes through host memory; empty: that is found out
  std::vector<PlanOption> options;

  // Sizes up to `most_bytes` (from the range before on).
  struct Range {
    uint64_t most_bytes = 0;
    int option = 0;
    bool operator==(const Range&) const = default;
  };

  // Works the ranges out, from the options. A plan that is better by less than 2% is no reason to
  // change.
  void find_ranges();
  // Decides itself: all sizes of the collective, until the next find_ranges().
  void set_ranges(CollectiveKind kind, std::vector<Range> ranges);
  const std::vector<Range>& ranges(CollectiveKind kind) const {
    return ranges_[static_cast<size_t>(kind)];
  }
  // nullptr: the table does not say. `generators_only`: a synthesized schedule would not serve the
  // call.
  const PlanOption* choose(CollectiveKind kind, uint64_t bytes, bool generators_only) const;

  // Whether it is chosen for any size.
  bool chooses(int option) const;

  // Microseconds; 0: unknown.
  static double estimate(const PlanOption& option, double bytes);

  // The same table as text, for other ranks. decode() throws Error on anything else.
  std::string encode() const;
  static SelectionTable decode(std::string_view text);

  bool operator==(const SelectionTable&) const = default;

 private:
  std::vector<Range> best_ranges(CollectiveKind kind, bool generators_only) const;

  std::array<std::vector<Range>, kCollectiveKinds> ranges_, generator_ranges_;
};

// For people: the ranges of a collective, one line each, with the losers' costs.
std::string describe_ranges(const SelectionTable& table, CollectiveKind kind);
// What every option of a collective costs at one size, the cheapest first; `chosen` is marked.
std::string describe_options(const SelectionTable& table, CollectiveKind kind, uint64_t bytes,
                             const PlanOption* chosen);
// "16K", "1M"
std::string size_text(uint64_t bytes);

}  // namespace weft
