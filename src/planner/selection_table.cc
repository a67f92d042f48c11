// See selection_table.h.
#include "src/planner/selection_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr double kWorthAChange = 0.99;

// The size at which the costs of two options cross, between sizes i and i + 1.
uint64_t crossing(const PlanOption& a, const PlanOption& b, int i) {
  double low = std::log(SelectionTable::size(i)), high = std::log(SelectionTable::size(i + 1));
  for (int round = 0; round < 12; round++) {
    const double middle = (low + high) / 2, bytes = std::exp(middle);
    (SelectionTable::estimate(a, bytes) <= SelectionTable::estimate(b, bytes) ? low : high) =
        middle;
  }
  return static_cast<uint64_t>(std::exp(low)) / 16 * 16;
}

// The fields of a line, separated by tabs.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}
  std::string text() {
    const size_t end = std::min(rest_.find('\t'), rest_.size());
    std::string field(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return field;
  }
  template <typename Number>
  Number number() {
    const std::string field = text();
    Number value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size())
      fail(ncclInternalError, "a selection table has '{}' where a number must be", field);
    return value;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Not synthesized for some calls, and not a kernel that needs access between all GPUs.
bool serves_all_calls(const PlanOption& option) {
  return option.schedule == -1 &&
         (option.path == PlanPath::kFifos || option.path == PlanPath::kLanes);
}

PlanPath path_of(int number) {
  if (number < 0 || number > static_cast<int>(PlanPath::kCopyEngines))
    fail(ncclInternalError, "a selection table has a path {} that nobody knows", number);
  return static_cast<PlanPath>(number);
}

}  // namespace

double SelectionTable::estimate(const PlanOption& option, double bytes) {
  if (option.us.empty()) return 0;
  const double place = std::log2(std::max(bytes, size(0)) / size(0));
  const int i = std::clamp(static_cast<int>(place), 0, kSizes - 2);
  const double a = option.us[static_cast<size_t>(i)], b = option.us[static_cast<size_t>(i) + 1];
  const double share = (std::max(bytes, size(0)) - size(i)) / (size(i + 1) - size(i));
  return std::max(a + (b - a) * share, 1e-3);
}

std::vector<SelectionTable::Range> SelectionTable::best_ranges(CollectiveKind kind,
                                                               bool generators_only) const {
  std::vector<Range> found;
  int current = -1;
  for (int i = 0; i < kSizes; i++) {
    int best = -1;
    const auto cost = [&](int o) {
      return options[static_cast<size_t>(o)].us[static_cast<size_t>(i)];
    };
    for (int o = 0; o < static_cast<int>(options.size()); o++) {
      const PlanOption& option = options[static_cast<size_t>(o)];
      if (option.kind != kind || !option.barred.empty() || option.us.empty() ||
          (generators_only && !serves_all_calls(option)))
        continue;
      if (best < 0 || cost(o) < cost(best)) best = o;
    }
    if (best < 0) return {};
    if (current >= 0 && cost(current) * kWorthAChange <= cost(best)) best = current;
    if (current >= 0 && best != current) {
      const uint64_t limit = crossing(options[static_cast<size_t>(current)],
                                      options[static_cast<size_t>(best)], i - 1);
      found.push_back({limit, current});
    }
    current = best;
  }
  found.push_back({kNoLimit, current});
  return found;
}

void SelectionTable::find_ranges() {
  for (size_t k = 0; k < kCollectiveKinds; k++) {
    ranges_[k] = best_ranges(static_cast<CollectiveKind>(k), false);
    generator_ranges_[k] = best_ranges(static_cast<CollectiveKind>(k), true);
  }
}

void SelectionTable::set_ranges(CollectiveKind kind, std::vector<Range> ranges) {
  const auto k = static_cast<size_t>(kind);
  const bool generators = std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return serves_all_calls(options[static_cast<size_t>(range.option)]);
  });
  if (generators) generator_ranges_[k] = ranges;
  ranges_[k] = std::move(ranges);
}

const PlanOption* SelectionTable::choose(CollectiveKind kind, uint64_t bytes,
                                         bool generators_only) const {
  const auto k = static_cast<size_t>(kind);
  for (const Range& range : generators_only ? generator_ranges_[k] : ranges_[k])
    if (bytes <= range.most_bytes) return &options[static_cast<size_t>(range.option)];
  return nullptr;
}

bool SelectionTable::chooses(int option) const {
  const auto k = static_cast<size_t>(options[static_cast<size_t>(option)].kind);
  const auto is = [option](const Range& range) { return range.option == option; };
  return std::any_of(ranges_[k].begin(), ranges_[k].end(), is) ||
         std::any_of(generator_ranges_[k].begin(), generator_ranges_[k].end(), is);
}

std::string SelectionTable::encode() const {
  std::string text = fmt::format("table\t{}\t{}\t{}\t{}\t{:d}\t{:d}\t{}\n", machine, origin,
                                 slice_bytes, lend_bytes, advisory, measured, via_host);
  for (const PlanOption& o : options) {
    text +=
        fmt::format("option\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}", static_cast<int>(o.kind), o.name,
                    o.schedule, static_cast<int>(o.path), o.lanes, o.channels, o.chunks, o.barred);
    for (const double us : o.us) text += fmt::format("\t{}", us);
    text += '\n';
  }
  for (const bool generators : {false, true})
    for (int k = 0; k < kCollectiveKinds; k++)
      for (const Range& range : (generators ? generator_ranges_ : ranges_)[static_cast<size_t>(k)])
        text += fmt::format("{}\t{}\t{}\t{}\n", generators ? "generators" : "range", k,
                            range.most_bytes, range.option);
  return text;
}

SelectionTable SelectionTable::decode(std::string_view text) {
  SelectionTable table;
  bool begun = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) fail(ncclInternalError, "a selection table is cut off");
    Fields line(text.substr(0, end));
    text.remove_prefix(end + 1);
    const std::string what = line.text();
    if (what == "table") {
      begun = true;
      table.machine = line.text();
      table.origin = line.text();
      table.slice_bytes = line.number<double>();
      table.lend_bytes = line.number<double>();
      table.advisory = line.number<int>() != 0;
      table.measured = line.number<int>() != 0;
      table.via_host = line.text();
      continue;
    }
    const int kind = line.number<int>();
    if (!begun || kind < 0 || kind >= kCollectiveKinds)
      fail(ncclInternalError, "a selection table is malformed");
    if (what == "option") {
      PlanOption& o = table.options.emplace_back();
      o.kind = static_cast<CollectiveKind>(kind);
      o.name = line.text();
      o.schedule = line.number<int>();
      o.path = path_of(line.number<int>());
      o.lanes = line.number<int>();
      o.channels = line.number<int>();
      o.chunks = line.number<int>();
      o.barred = line.text();
      while (!line.empty()) o.us.push_back(line.number<double>());
      if (!o.us.empty() && o.us.size() != kSizes)
        fail(ncclInternalError, "a selection table has {} costs where {} must be", o.us.size(),
             kSizes);
      continue;
    }
    const Range range{line.number<uint64_t>(), line.number<int>()};
    if (range.option < 0 || static_cast<size_t>(range.option) >= table.options.size())
      fail(ncclInternalError, "a selection table names an option that it lacks");
    (what == "generators" ? table.generator_ranges_ : table.ranges_)[static_cast<size_t>(kind)]
        .push_back(range);
  }
  if (!begun) fail(ncclInternalError, "a selection table is empty");
  return table;
}

}  // namespace weft
