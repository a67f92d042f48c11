// weft env: the environment variables Weft reads.
#include <fmt/format.h>

#include "src/base/config.h"
#include "src/tools/commands.h"

namespace weft {

void add_env(CLI::App& app) {
  app.add_subcommand("env", "the environment variables Weft reads, and their values here")
      ->callback([] {
        for (const auto& entry : describe(Config::from_environment()))
          fmt::print("{:24} {:20} {}\n", entry.name, entry.value.empty() ? "-" : entry.value,
                     entry.meaning);
      });
}

}  // namespace weft
