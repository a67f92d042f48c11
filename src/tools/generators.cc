// weft generators: what WEFT_PLAN can name.
#include "algorithms/generators/generators.h"

#include <fmt/format.h>

#include "src/tools/commands.h"

namespace weft {

void add_generators(CLI::App& app) {
  app.add_subcommand("generators", "the schedule generators that WEFT_PLAN can name")->callback([] {
    for (const auto& generator : generators())
      fmt::print("{:12} {}\n", generator.name, generator.summary);
  });
}

}  // namespace weft
