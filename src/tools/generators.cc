// weft generators: the names that WEFT_PLAN accepts.
#include "algorithms/generators/generators.h"

#include <fmt/format.h>

#include "src/tools/commands.h"

namespace weft {

void add_generators(Command& program) {
  program.add_command("generators", "the schedule generators that WEFT_PLAN can name").calls([] {
    for (const auto& generator : generators())
      fmt::print("{:12} {}\n", generator.name, generator.summary);
  });
}

}  // namespace weft
