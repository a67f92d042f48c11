// weft status: the communicators of running jobs of this machine, and what each rank does.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/comm/process_status.h"
#include "src/tools/commands.h"

namespace weft {
namespace {

struct StatusOptions {
  std::string which = "all";
  bool json = false, watch = false;
};

int pid_of(const std::string& which) {
  if (which == "all") return 0;
  const bool number = !which.empty() && which.size() < 10 &&
                      which.find_first_not_of("0123456789") == std::string::npos;
  const int pid = number ? std::stoi(which) : 0;
  if (pid <= 0) fail(ncclInvalidArgument, "status: '{}' is neither a process id nor 'all'", which);
  return pid;
}

void show(const StatusOptions& options) {
  const int pid = pid_of(options.which);
  const bool clears = options.watch && !options.json && isatty(STDOUT_FILENO) != 0;
  for (;;) {
    const std::vector<std::string> processes = ask_processes(pid, geteuid() == 0);
    if (processes.empty() && !options.watch) {
      if (options.json) fmt::print("{}\n", status_list(processes));
      fmt::print(stderr, "status: {}\n",
                 pid == 0 ? "no process of yours uses Weft on this machine"
                          : fmt::format("process {} does not use Weft, or does not exist", pid));
      throw ExitCode{1};
    }
    if (clears) fmt::print("\033[H\033[2J");
    if (options.json)
      fmt::print("{}\n", status_list(processes));
    else
      fmt::print("{}", status_text(processes));
    std::fflush(stdout);
    if (!options.watch) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_status(Command& program) {
  const auto options = std::make_shared<StatusOptions>();
  Command command = program.add_command(
      "status", "what the communicators of running jobs do: operations, and who waits for whom");
  command.add_option("process", options->which, "a process id, or all (yours, on this machine)");
  command.add_flag("--json", options->json, "one JSON object");
  command.add_flag("--watch", options->watch, "again every second");
  command.calls([options] { show(*options); });
}

}  // namespace weft
