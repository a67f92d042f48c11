// The plans of a communicator, as rank 0 tells the others. See init_plans.h.
#include <charconv>

#include "src/base/error.h"
#include "src/planner/init_plans.h"

namespace weft {
namespace {

// Appends a part, with its length in front.
void put(std::string& text, std::string_view part) {
  text += fmt::format("{}\n", part.size());
  text += part;
}

std::string_view take(std::string_view& text) {
  size_t size = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  const auto digits = static_cast<size_t>(rest - text.data());
  if (error != std::errc() || digits >= text.size() || text[digits] != '\n' ||
      size > text.size() - digits - 1)
    fail(ncclInternalError, "what rank 0 has planned arrived in pieces");
  const std::string_view part = text.substr(digits + 1, size);
  text.remove_prefix(digits + 1 + size);
  return part;
}

}  // namespace

std::string CommunicatorPlans::encode() const {
  std::string text;
  put(text, table.encode());
  put(text, nics.encode());
  for (const auto& schedule : schedules->all()) {
    put(text, schedule->path);
    put(text, schedule->text);
  }
  return text;
}

CommunicatorPlans CommunicatorPlans::decode(std::string_view text) {
  CommunicatorPlans plans;
  plans.table = SelectionTable::decode(take(text));
  plans.nics = NicPlan::decode(take(text));
  std::vector<std::pair<std::string, std::string>> files;
  while (!text.empty()) {
    const std::string name(take(text));
    files.emplace_back(name, take(text));
  }
  plans.schedules = ImportedSchedules::from_texts(files);
  const auto schedules = static_cast<int>(plans.schedules->all().size());
  for (const PlanOption& option : plans.table.options)
    if (option.schedule >= schedules)
      fail(ncclInternalError, "rank 0 plans with schedule {} of {}", option.schedule, schedules);
  return plans;
}

}  // namespace weft
