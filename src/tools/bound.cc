// weft bound: the throughput that no schedule can exceed on a machine.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/tools/answers.h"
#include "src/tools/commands.h"

namespace weft {
namespace {

struct BoundArguments {
  std::string topo, collective;
  int root = 0;
  bool json = false;
};

void answer(const BoundArguments& arguments) {
  const Machine machine = load_machine(arguments.topo);
  const Collective collective{*collective_named(arguments.collective),
                              static_cast<int>(gpus(machine).size()), arguments.root};
  if (collective.nranks == 0) fail(ncclInvalidArgument, "{} has no GPUs", machine.name);
  const Bound bound = throughput_bound(machine, collective);
  if (arguments.json) {
    nlohmann::ordered_json out;
    out["algbw_gbps"] = number(bound.algbw_gbps);
    out["busbw_gbps"] = number(bound.algbw_gbps * busbw_factor(collective));
    out["exact"] = bound.exact;
    out["collective"] = name(collective.kind);
    out["ranks"] = collective.nranks;
    out["narrow"] = nlohmann::ordered_json::array();
    for (const int link : bound.narrow) out["narrow"].push_back(link_name(machine, link));
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} of {} GPUs on {}: {} {:.4g} GB/s (busbw {:.4g})\n", name(collective.kind),
             collective.nranks, machine.name, bound.exact ? "at best" : "less than",
             bound.algbw_gbps, bound.algbw_gbps * busbw_factor(collective));
  if (collective.kind == CollectiveKind::kAllReduce)
    fmt::print("as reduce_scatter and then all_gather, each at its optimum\n");
  if (bound.narrow.empty()) return;
  fmt::print("limited by");
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < bound.narrow.size() && i < kShown; i++)
    fmt::print("{} {}", i > 0 ? "," : "", link_name(machine, bound.narrow[i]));
  if (bound.narrow.size() > kShown) fmt::print(" and {} more links", bound.narrow.size() - kShown);
  fmt::print("\n");
}

}  // namespace

void add_bound(Command& program) {
  Command command = program.add_command("bound", "the best throughput any schedule can have");
  const auto arguments = std::make_shared<BoundArguments>();
  command.add_option("TOPO", arguments->topo, "a machine: a file, or a name such as dgx-a100x4")
      .required();
  command.add_option("--coll", arguments->collective, "collective").required().collective();
  command.add_option("--root", arguments->root, "of rooted collectives");
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
