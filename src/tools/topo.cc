#include <fmt/format.h>

#include "src/tools/commands.h"
#include "src/topology/host_summary.h"

namespace weft {

void add_topo(CLI::App& app) {
  app.add_subcommand("topo", "show this machine")->callback([] {
    fmt::print("{}", describe_host());
  });
}

}  // namespace weft
