// Starts, watches and collects processes.
#include "tests/support/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "tests/support/sampling.h"
#include "tests/support/scenario.h"
#include "tests/support/threads.h"

extern char** environ;

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int output = -1;  // read end of its stdout and stderr; -1 once closed
  bool running = true;
  ProcessResult result;
};

std::vector<std::string> environment_of(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (extra.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : extra) all.push_back(name + "=" + value);
  return all;
}

// posix_spawn, not fork: this process has threads.
Child start(const std::map<std::string, std::string>& extra) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<std::string> entries = environment_of(extra);
  std::vector<char*> env;
  for (std::string& entry : entries) env.push_back(entry.data());
  env.push_back(nullptr);
  char self[] = "/proc/self/exe";
  char* argv[] = {self, nullptr};
  Child child;
  const int error = posix_spawn(&child.pid, self, &actions, nullptr, argv, env.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
  child.output = ends[0];
  fcntl(child.output, F_SETFL, O_NONBLOCK);
  return child;
}

void drain(Child& child) {
  char buffer[4096];
  while (child.output >= 0) {
    const ssize_t n = read(child.output, buffer, sizeof buffer);
    if (n > 0) {
      child.result.output.append(buffer, static_cast<size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      close(child.output);
      child.output = -1;
    }
  }
}

void reap(Child& child) {
  int status = 0;
  if (!child.running || waitpid(child.pid, &status, WNOHANG) != child.pid) return;
  child.running = false;
  if (WIFEXITED(status)) child.result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.result.signal = WTERMSIG(status);
}

bool failed(const Child& child) { return !child.running && child.result.exit_code != 0; }

// Reads output until all processes have ended, the deadline has passed, or the grace after a
// failure has passed.
void collect(std::vector<Child>& children, Clock::time_point deadline,
             const std::optional<std::chrono::milliseconds>& grace = {}) {
  for (bool any_failed = false;;) {
    std::vector<pollfd> fds;
    bool running = false;
    for (Child& child : children) {
      drain(child);
      reap(child);
      running = running || child.running;
      if (grace && failed(child) && !std::exchange(any_failed, true))
        deadline = std::min(deadline, Clock::now() + patience(*grace));
      if (child.output >= 0) fds.push_back({child.output, POLLIN, 0});
    }
    if (!running || Clock::now() >= deadline) return;
    poll(fds.data(), fds.size(), 20);
  }
}

}  // namespace

std::map<std::string, std::string> separate_hosts(int rank) {
  return {{"NCCL_HOSTID", std::to_string(rank)},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_IB_DISABLE", "1"}};
}

std::vector<ProcessResult> run_processes(const std::string& scenario, int n,
                                         const ProcessOptions& options) {
  std::vector<ncclUniqueId> ids;
  for (int i = 0; i < options.ids; ++i) ids.push_back(new_unique_id());
  std::vector<Child> children;
  for (int rank = 0; rank < n; ++rank) {
    std::map<std::string, std::string> env;
    if (options.environment) env = options.environment(rank);
    env.merge(scenario_environment(scenario, {rank, n, ids, options.argument}));
    const auto start_here = [&] { children.push_back(start(env)); };
    if (options.place) {
      options.place(rank, start_here);
    } else {
      start_here();
    }
  }
  collect(children, Clock::now() + patience(options.limit), options.grace);
  for (Child& child : children) {
    if (!child.running) continue;
    child.result.hung = true;
    kill(child.pid, SIGKILL);
  }
  collect(children, Clock::now() + std::chrono::seconds(20));
  std::vector<ProcessResult> results;
  for (Child& child : children) {
    drain(child);
    if (child.output >= 0) close(child.output);
    results.push_back(std::move(child.result));
  }
  return results;
}

void run_ranks_as_processes(const std::string& scenario, int n, const ProcessOptions& options) {
  ProcessOptions hasty = options;
  if (!hasty.grace) hasty.grace = std::chrono::seconds(20);
  const std::vector<ProcessResult> results = run_processes(scenario, n, hasty);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const ProcessResult& r = results[rank];
    if (r.exit_code == 0 && !r.hung) continue;
    ADD_FAILURE() << scenario << ": rank " << rank << " of " << n
                  << (r.hung          ? " hung"
                      : r.signal != 0 ? " was ended by signal " + std::to_string(r.signal)
                                      : " ended with status " + std::to_string(r.exit_code))
                  << "; its output:\n"
                  << r.output;
  }
}

}  // namespace weft::test
