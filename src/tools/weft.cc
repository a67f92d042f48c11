// The `weft` command.
#include "include/weft.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "algorithms/generators/generators.h"
#include "src/base/config.h"
#include "src/topology/host_summary.h"

namespace {

void print_environment() {
  for (const auto& entry : weft::describe(weft::Config::from_environment()))
    fmt::print("{:24} {:20} {}\n", entry.name, entry.value.empty() ? "-" : entry.value,
               entry.meaning);
}

void print_generators() {
  for (const auto& generator : weft::generators())
    fmt::print("{:12} {}\n", generator.name, generator.summary);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Weft: looks at machines, and makes and runs collective schedules for them"};
  app.set_version_flag("--version", "weft " WEFT_VERSION_STRING);
  app.require_subcommand(1);
  app.add_subcommand("topo", "show this machine")->callback([] {
    fmt::print("{}", weft::describe_host());
  });
  app.add_subcommand("env", "the environment variables Weft reads, and their values here")
      ->callback(print_environment);
  app.add_subcommand("generators", "the schedule generators that WEFT_PLAN can name")
      ->callback(print_generators);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return 0;
}
