// See blows.h.
#include "tests/faults/blows.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

namespace {

std::vector<int> sockets_of_this_process() {
  std::vector<int> sockets;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const std::string what = std::filesystem::read_symlink(entry.path(), gone);
    if (fd > 2 && what.starts_with("socket:")) sockets.push_back(fd);
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

// shutdown(), not close(): another thread could get the number for a new file. The blow comes from
// outside, so it goes around TSan, which would see a race with whoever closes the socket.
void lose(int socket) { syscall(SYS_shutdown, socket, SHUT_RDWR); }

int option_of(int socket, int option) {
  int value = 0;
  socklen_t length = sizeof value;
  syscall(SYS_getsockopt, socket, SOL_SOCKET, option, &value, &length);
  return value;
}

size_t stack_before = 0;

void set_default_stack(size_t bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

}  // namespace

void lose_a_socket(uint64_t draw) {
  const std::vector<int> sockets = sockets_of_this_process();
  if (!sockets.empty()) lose(sockets[mix(draw) % sockets.size()]);
}

void lose_connection(size_t number) {
  std::vector<int> connections = sockets_of_this_process();
  std::erase_if(connections, [](int socket) { return option_of(socket, SO_ACCEPTCONN) != 0; });
  if (!connections.empty()) lose(connections[number % connections.size()]);
}

void lose_all_tcp() {
  for (const int socket : sockets_of_this_process()) {
    const int domain = option_of(socket, SO_DOMAIN);
    if (domain != AF_UNIX && option_of(socket, SO_ACCEPTCONN) == 0) lose(socket);
  }
}

// No address space has room for this stack.
void forbid_threads() {
  pthread_attr_t attributes;
  pthread_getattr_default_np(&attributes);
  pthread_attr_getstacksize(&attributes, &stack_before);
  pthread_attr_destroy(&attributes);
  set_default_stack(size_t{1} << 60);
}

void allow_threads() {
  if (stack_before != 0) set_default_stack(stack_before);
}

}  // namespace weft::test
