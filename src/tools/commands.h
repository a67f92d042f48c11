// The subcommands of `weft`, one file each. A command prints its answer. It throws ExitCode if the
// code is not 0: 1 for a negative answer, 2 for unreadable input. Errors of the library
// (weft::Error) become one line on stderr and exit code 2.
#pragma once

#include "src/tools/command_line.h"

namespace weft {

void add_topo(Command& program);
void add_bound(Command& program);
void add_simulate(Command& program);
void add_synth(Command& program);
void add_show(Command& program);
void add_doctor(Command& program);
void add_env(Command& program);
void add_generators(Command& program);
void add_verify(Command& program);
void add_run(Command& program);
void add_explain(Command& program);
void add_calibrate(Command& program);
void add_place(Command& program);
void add_status(Command& program);
void add_volume(Command& program);
void add_overlap(Command& program);
void add_serve(Command& program);

}  // namespace weft
