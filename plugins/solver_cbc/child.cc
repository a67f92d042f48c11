// See child.h.
#include "plugins/solver_cbc/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace weft {
namespace {

[[noreturn]] void be_child(int alive, const std::function<void()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
  try {
    work();
  } catch (...) {
    _exit(1);
  }
  (void)alive;  // closes with the process, which notifies the parent
  _exit(0);
}

}  // namespace

ChildEnd run_in_child(double seconds, const std::function<void()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ChildEnd::kCannotStart;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    be_child(ends[1], work);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return ChildEnd::kCannotStart;
  }
  bool late = false;
  for (;;) {
    const double left =
        std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    pollfd watched{ends[0], POLLIN, 0};
    const int ready = left > 0 ? poll(&watched, 1, std::max(1, static_cast<int>(left * 1e3))) : 0;
    if (ready > 0) break;
    if (ready == 0 || errno != EINTR) {
      late = true;
      kill(child, SIGKILL);
      break;
    }
  }
  close(ends[0]);
  int status = 0;
  pid_t waited;
  do waited = waitpid(child, &status, 0);
  while (waited < 0 && errno == EINTR);
  if (late) return ChildEnd::kTooLate;
  // Somebody else may have waited for the child. Then only the data it wrote shows how it ended.
  if (waited < 0) return ChildEnd::kDone;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ChildEnd::kDone : ChildEnd::kCrashed;
}

void* shared_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void free_shared(void* memory, size_t bytes) {
  if (memory != nullptr) munmap(memory, bytes);
}

}  // namespace weft
