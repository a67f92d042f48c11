// Selection tables as text.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/planner/selection_table.h"

namespace weft {
namespace {

std::string time_text(double us) {
  if (us <= 0) return "?";
  if (us < 1e3) return fmt::format("{:.3g} us", us);
  return us < 1e6 ? fmt::format("{:.3g} ms", us * 1e-3) : fmt::format("{:.3g} s", us * 1e-6);
}

// All options of a collective at a size, cheapest first. Options that are not chosen come last.
std::vector<const PlanOption*> by_cost(const SelectionTable& table, CollectiveKind kind,
                                       double bytes) {
  std::vector<const PlanOption*> sorted;
  for (const PlanOption& option : table.options)
    if (option.kind == kind) sorted.push_back(&option);
  std::stable_sort(sorted.begin(), sorted.end(), [&](const PlanOption* a, const PlanOption* b) {
    if (a->barred.empty() != b->barred.empty()) return a->barred.empty();
    return SelectionTable::estimate(*a, bytes) < SelectionTable::estimate(*b, bytes);
  });
  return sorted;
}

// "2 lanes, 1 channel, 64K-byte slices"
std::string manner(const SelectionTable& table, const PlanOption& option) {
  std::string text =
      fmt::format("{} lane{}, {} channel{}", option.lanes, option.lanes == 1 ? "" : "s",
                  option.channels, option.channels == 1 ? "" : "s");
  if (table.slice_bytes > 0)
    text += fmt::format(", {}-byte slices", size_text(static_cast<uint64_t>(table.slice_bytes)));
  return text;
}

}  // namespace

std::string_view name_of(PlanPath path) {
  switch (path) {
    case PlanPath::kFifos:
      return "fifos";
    case PlanPath::kLanes:
      return "lanes";
    case PlanPath::kPackets:
      return "packets";
    case PlanPath::kLoadStore:
      return "load_store";
    default:
      return "copy_engines";
  }
}

std::string size_text(uint64_t bytes) {
  if (bytes == std::numeric_limits<uint64_t>::max()) return "any";
  for (const auto& [shift, unit] : {std::pair{30, 'G'}, {20, 'M'}, {10, 'K'}})
    if (bytes >= uint64_t{1} << shift) {
      const double value = static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << shift);
      return fmt::format("{:.4g}{}", value, unit);
    }
  return fmt::format("{}", bytes);
}

std::string describe_ranges(const SelectionTable& table, CollectiveKind kind) {
  std::string text;
  uint64_t least = 0;
  for (const SelectionTable::Range& range : table.ranges(kind)) {
    const PlanOption& option = table.options[static_cast<size_t>(range.option)];
    const bool last = range.most_bytes == std::numeric_limits<uint64_t>::max();
    // One size in the middle stands for the range.
    const double high = last ? SelectionTable::size(SelectionTable::kSizes - 3)
                             : static_cast<double>(range.most_bytes);
    const double low = std::max(static_cast<double>(least), 256.0);
    const double middle = std::max(low, std::min(high, low * 16));
    std::string others;
    for (const PlanOption* other : by_cost(table, kind, middle))
      if (other != &option && other->barred.empty())
        others += fmt::format("{}{} {}", others.empty() ? "" : ", ", other->name,
                              time_text(SelectionTable::estimate(*other, middle)));
    text += fmt::format("{:14} {:>8} to {:<8} {:12} {:9} at {:<6} ({}){}{}\n", name(kind),
                        size_text(least), last ? "any" : size_text(range.most_bytes), option.name,
                        time_text(SelectionTable::estimate(option, middle)),
                        size_text(static_cast<uint64_t>(middle)), manner(table, option),
                        others.empty() ? "" : "; others: ", others);
    least = range.most_bytes + 1;
  }
  return text;
}

std::string describe_options(const SelectionTable& table, CollectiveKind kind, uint64_t bytes,
                             const PlanOption* chosen) {
  std::string text;
  for (const PlanOption* option : by_cost(table, kind, static_cast<double>(bytes)))
    text += fmt::format("{} {:24} {:>10}  {}{}\n", option == chosen ? "*" : " ", option->name,
                        time_text(SelectionTable::estimate(*option, static_cast<double>(bytes))),
                        manner(table, *option),
                        option->barred.empty() ? "" : "; not chosen: " + option->barred);
  return text;
}

}  // namespace weft
