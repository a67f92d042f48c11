// weft topo: shows a machine, or converts it.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "algorithms/catalogue/catalogue.h"
#include "src/tools/commands.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/formats/nccl_xml.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/hwloc_view.h"
#include "src/topology/views/view.h"

namespace weft {
namespace {

std::string in_format(const Machine& machine, const std::string& format) {
  if (format == "json") return machine_to_json(machine);
  if (format == "nccl") return machine_to_nccl_xml(machine);
  if (format == "dot") return machine_dot(machine);
  if (format == "svg") return machine_svg(machine);
  return machine_text(machine);
}

double memory_gib() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) /
         (1u << 30);
}

}  // namespace

void add_topo(Command& program) {
  struct Options {
    std::string topo, format = "text";
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  Command command = program.add_command("topo", "show a machine, or convert it");
  command.add_option(
      "TOPO", options->topo,
      "file or name of the catalogue, xN behind it for N hosts; default: this machine");
  command.add_option("--format", options->format, "text, json, nccl, dot or svg")
      .one_of({"text", "json", "nccl", "dot", "svg"});
  command.add_flag("--json", options->json, "the same as --format json");
  command.calls([options] {
    const Machine machine =
        options->topo.empty() ? this_machine({hwloc_view}) : load_machine(options->topo);
    if (options->topo.empty() && options->format == "text" && !options->json)
      fmt::print("{} hardware threads, {:.1f} GiB of memory\n", std::thread::hardware_concurrency(),
                 memory_gib());
    fmt::print("{}", in_format(machine, options->json ? "json" : options->format));
  });
}

}  // namespace weft
