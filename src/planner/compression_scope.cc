// See compression_scope.h.
#include "src/planner/compression_scope.h"

#include <algorithm>
#include <sstream>

#include "src/base/error.h"
#include "src/schedule/collective.h"

namespace weft {
namespace {

// Compression that saves less is not worth its errors.
constexpr double kWorthwhile = 0.95;
// What was decided before stays if it is not slower by more than this.
constexpr double kStays = 1.05;
// What was not compressed before begins to be if it saves so much.
constexpr double kClearlyFaster = 0.9;

constexpr std::array<std::string_view, kCodedLinks> kLinksNames = {"none", "machines", "hosts"};

const TimeLine& line_of(const CompressionTimes& times, CodedLinks links) {
  return times[static_cast<size_t>(links)];
}

// The fastest at the large size. kNone: nothing compressed was measured.
CodedLinks fastest_links(const CompressionTimes& times) {
  CodedLinks best = CodedLinks::kNone;
  for (const CodedLinks links : {CodedLinks::kBetweenMachines, CodedLinks::kBetweenHosts}) {
    const double time = line_of(times, links).large;
    if (time > 0 && (best == CodedLinks::kNone || time < line_of(times, best).large)) best = links;
  }
  return best;
}

bool stays(const CompressionTimes& times, CodedLinks best, const CompressionScope& before) {
  const TimeLine &plain = line_of(times, CodedLinks::kNone), &now = line_of(times, before.links);
  if (before.links == CodedLinks::kNone)
    return line_of(times, best).large > kClearlyFaster * plain.large;
  return now.large > 0 && now.large < kStays * line_of(times, best).large &&
         now.large < plain.large && now.at(before.from) < kStays * plain.at(before.from);
}

}  // namespace

CompressionScope decide(const CompressionTimes& times, const CompressionScope* before) {
  const CodedLinks best = fastest_links(times);
  const CompressionScope never{CodedLinks::kNone, kCompressFrom};
  if (best == CodedLinks::kNone) return never;
  if (before != nullptr && stays(times, best, *before)) return *before;
  const auto from = faster_from(line_of(times, CodedLinks::kNone), line_of(times, best),
                                kWorthwhile, kCompressFrom);
  return from ? CompressionScope{best, *from} : never;
}

std::string write_scopes(const CompressionScopes& scopes) {
  std::string text;
  for (size_t kind = 0; kind < scopes.size(); kind++)
    text += fmt::format("{} {} {}\n", name(static_cast<CollectiveKind>(kind)),
                        kLinksNames[static_cast<size_t>(scopes[kind].links)], scopes[kind].from);
  return text;
}

CompressionScopes parse_scopes(std::string_view text) {
  CompressionScopes scopes;
  std::istringstream lines{std::string(text)};
  std::string collective, links;
  size_t from = 0, read = 0;
  for (; lines >> collective >> links >> from; read++) {
    const auto kind = parse_collective(collective);
    const auto named = std::find(kLinksNames.begin(), kLinksNames.end(), links);
    if (!kind || named == kLinksNames.end() || from < kCompressFrom)
      fail(ncclInvalidUsage, "'{} {} {}' does not say what is compressed", collective, links, from);
    scopes[static_cast<size_t>(*kind)] = {static_cast<CodedLinks>(named - kLinksNames.begin()),
                                          from};
  }
  if (read != scopes.size() ||
      std::count(text.begin(), text.end(), '\n') != static_cast<std::ptrdiff_t>(read))
    fail(ncclInvalidUsage, "it does not say for {} collectives what is compressed", scopes.size());
  return scopes;
}

std::string describe(const CompressionScope& scope) {
  if (scope.links == CodedLinks::kNone) return "not compressed";
  return fmt::format("compressed between {} from {} bytes on",
                     kLinksNames[static_cast<size_t>(scope.links)], scope.from);
}

}  // namespace weft
