// See blows.h.
#include "tests/faults/blows.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
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

// shutdown(), not close(): another thread could get the number for a new file.
void lose_a_socket() {
  std::vector<int> sockets;
  DIR* folder = opendir("/proc/self/fd");
  for (const dirent* entry = readdir(folder); entry != nullptr; entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    struct stat file {};
    if (fd > 2 && fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) sockets.push_back(fd);
  }
  closedir(folder);
  if (!sockets.empty())
    shutdown(sockets[mix(static_cast<uint64_t>(getpid())) % sockets.size()], SHUT_RDWR);
}

}  // namespace weft::test
