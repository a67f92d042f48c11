// See blows.h.
#include "tests/faults/blows.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/sampling.h"

namespace weft::test {

void kill_this_process() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void stop_for_a_second() {
  if (const pid_t waker = fork(); waker == 0) {
    sleep(1);
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  kill(getpid(), SIGSTOP);
}

// shutdown(), not close(): another thread could get the number for a new file. The blow comes from
// outside, so it goes around TSan, which would see a race with whoever closes the socket.
void lose_a_socket() {
  std::vector<int> sockets;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const std::string what = std::filesystem::read_symlink(entry.path(), gone);
    if (fd > 2 && what.starts_with("socket:")) sockets.push_back(fd);
  }
  if (!sockets.empty())
    syscall(SYS_shutdown, sockets[mix(static_cast<uint64_t>(getpid())) % sockets.size()],
            SHUT_RDWR);
}

}  // namespace weft::test
