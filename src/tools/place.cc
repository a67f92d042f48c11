// weft place: assigns the ranks of a pipeline or ring to GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "algorithms/catalogue/catalogue.h"
#include "src/planner/rank_placement.h"
#include "src/tools/answers.h"
#include "src/tools/commands.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/hwloc_view.h"

namespace weft {
namespace {

struct PlaceArguments {
  std::string topo, pattern = "pipeline";
  int ranks = 0;
  bool json = false;
};

void answer(const PlaceArguments& arguments) {
  Discovery how;
  how.hwloc = hwloc_view;
  const Machine machine = arguments.topo.empty() ? this_machine(how) : load_machine(arguments.topo);
  const std::vector<int> all = gpus(machine);
  const int ranks = arguments.ranks > 0 ? arguments.ranks : static_cast<int>(all.size());
  const auto placed = place_ranks(
      machine, ranks, arguments.pattern == "ring" ? WorkPattern::kCycle : WorkPattern::kPipeline);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t r = 0; r < placed.size(); r++) {
    const PlacedRank& rank = placed[r];
    const Node& node = machine.nodes[static_cast<size_t>(rank.gpu)];
    const auto number_of =
        static_cast<int>(std::find(all.begin(), all.end(), rank.gpu) - all.begin());
    if (arguments.json) {
      list.push_back({{"rank", r}, {"gpu", number_of}, {"id", node.id}, {"host", node.host}});
      if (rank.way != PathClass::kNone) {
        list.back()["way"] = name_of(rank.way);
        list.back()["gbps"] = number(rank.gbps);
      }
      continue;
    }
    fmt::print("rank {:<4} GPU {:<4} {:10} host {:<4}", r, number_of, node.id, node.host);
    if (rank.way != PathClass::kNone)
      fmt::print(" next: {} at {:.4g} GB/s", name_of(rank.way), rank.gbps);
    fmt::print("\n");
  }
  if (arguments.json)
    fmt::print("{}\n",
               nlohmann::ordered_json({{"pattern", arguments.pattern}, {"ranks", list}}).dump());
}

}  // namespace

void add_place(Command& program) {
  Command command = program.add_command("place", "which rank of a pipeline or ring on which GPU");
  const auto arguments = std::make_shared<PlaceArguments>();
  command.add_option("TOPO", arguments->topo, "a machine; without it this one");
  command.add_option("--ranks", arguments->ranks, "ranks; without it one per GPU").positive();
  command.add_option("--pattern", arguments->pattern, "pipeline (default) or ring")
      .one_of({"pipeline", "ring"});
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
