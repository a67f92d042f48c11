// weft doctor: what keeps this machine from full speed, and how to fix it.
#include <fmt/format.h>

#include <memory>

#include "src/tools/commands.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/sources/health.h"
#include "src/topology/sources/hwloc_view.h"

namespace weft {
namespace {

void print_json(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings)
    text +=
        fmt::format("{}\n  {{\"verdict\": \"{}\", \"what\": {}, \"cost\": {}, \"fix\": {}}}",
                    text.empty() ? "" : ",", name_of(finding.verdict), json_quoted(finding.what),
                    json_quoted(finding.cost), json_quoted(finding.fix));
  fmt::print("{{\"findings\": [{}]}}\n", text);
}

void print_text(const std::vector<Finding>& findings) {
  size_t open = 0;
  for (const auto& finding : findings) {
    fmt::print("[{:^7}] {}\n", name_of(finding.verdict), finding.what);
    if (!finding.cost.empty()) fmt::print("          cost: {}\n", finding.cost);
    if (!finding.fix.empty()) fmt::print("          fix:  {}\n", finding.fix);
    open += finding.verdict == Verdict::kGood ? 0 : 1;
  }
  fmt::print("{} of {} checks have something to say\n", open, findings.size());
}

}  // namespace

void add_doctor(Command& program) {
  const auto json = std::make_shared<bool>(false);
  Command command =
      program.add_command("doctor", "what this machine lacks for full speed, and what to do");
  command.add_flag("--json", *json, "one JSON object");
  command.calls([json] {
    const auto findings = examine(this_machine({hwloc_view}));
    if (*json)
      print_json(findings);
    else
      print_text(findings);
  });
}

}  // namespace weft
