// The `weft` command.
#include "include/weft.h"

#include "src/tools/commands.h"

int main(int argc, char** argv) {
  weft::CommandLine program(
      "weft", "Weft: looks at machines, and makes and runs collective schedules for them");
  program.set_version("weft " WEFT_VERSION_STRING);
  program.require_command();
  weft::add_topo(program);
  weft::add_bound(program);
  weft::add_synth(program);
  weft::add_simulate(program);
  weft::add_show(program);
  weft::add_doctor(program);
  weft::add_env(program);
  weft::add_generators(program);
  weft::add_verify(program);
  weft::add_run(program);
  weft::add_explain(program);
  weft::add_calibrate(program);
  weft::add_place(program);
  weft::add_status(program);
  weft::add_volume(program);
  weft::add_overlap(program);
  weft::add_serve(program);
  return program.run(argc, argv);
}
