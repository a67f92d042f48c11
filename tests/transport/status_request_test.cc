// Only processes of the same user, and root, learn what a process does.
#include "src/transport/status_request.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "src/base/error.h"
#include "src/transport/acceptor.h"

namespace weft::test {
namespace {

// Never destroyed, because the control thread watches it.
Acceptor& acceptor() {
  static Acceptor& mine = [&]() -> Acceptor& {
    Acceptor& made = *std::make_unique<Acceptor>(0.3).release();
    made.serve_status([] { return std::string(300000, 'x'); });
    return made;
  }();
  return mine;
}

// The answer's size; 0: none.
size_t asked(const Fd& socket) {
  try {
    return request_status(socket.get(), in_seconds(5)).size();
  } catch (const Error&) {
    return 0;
  }
}

TEST(StatusRequest, IsAnsweredForTheSameUser) {
  const Fd socket = connect_unix(acceptor().unix_name());
  EXPECT_EQ(socket_peer(socket.get()).pid, getpid());
  EXPECT_EQ(socket_peer(socket.get()).uid, static_cast<int64_t>(geteuid()));
  EXPECT_EQ(asked(socket), 300000u);
}

TEST(StatusRequest, IsNotAnsweredOverTcp) {
  const Fd socket = connect_tcp(Address::loopback(acceptor().port()), in_seconds(5));
  ASSERT_TRUE(socket);
  EXPECT_EQ(socket_peer(socket.get()).uid, -1);
  EXPECT_EQ(asked(socket), 0u);
}

TEST(StatusRequest, IsNotAnsweredForAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const std::string name = acceptor().unix_name();
  std::thread([&] {
    // The system call changes this thread only.
    ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
    EXPECT_EQ(asked(connect_unix(name)), 0u);
  }).join();
}

}  // namespace
}  // namespace weft::test
