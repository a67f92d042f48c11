// The `weft` command.
#include "include/weft.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "src/base/error.h"
#include "src/tools/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Weft: looks at machines, and makes and runs collective schedules for them"};
  app.set_version_flag("--version", "weft " WEFT_VERSION_STRING);
  app.require_subcommand(1);
  weft::add_topo(app);
  weft::add_bound(app);
  weft::add_synth(app);
  weft::add_simulate(app);
  weft::add_show(app);
  weft::add_doctor(app);
  weft::add_env(app);
  weft::add_generators(app);
  weft::add_verify(app);
  weft::add_run(app);
  weft::add_explain(app);
  weft::add_calibrate(app);
  weft::add_place(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& answer) {
    return answer.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "weft: {} (--help tells more)\n", error.what());
    return 2;
  } catch (const weft::Error& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
    return 2;
  }
  return 0;
}
