// The subcommands of `weft`, one file each. A command prints its answer and sets the exit code by
// throwing CLI::RuntimeError: 1 for a negative answer, 2 for unreadable input. Errors of the
// library (weft::Error) become one line on stderr and exit code 2.
#pragma once

#include <CLI/CLI.hpp>

namespace weft {

void add_topo(CLI::App& app);
void add_bound(CLI::App& app);
void add_simulate(CLI::App& app);
void add_synth(CLI::App& app);
void add_show(CLI::App& app);
void add_doctor(CLI::App& app);
void add_env(CLI::App& app);
void add_generators(CLI::App& app);
void add_verify(CLI::App& app);
void add_run(CLI::App& app);
void add_explain(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_place(CLI::App& app);

// For options that name a collective.
CLI::Validator is_collective();

}  // namespace weft
