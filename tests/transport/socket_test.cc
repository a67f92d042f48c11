// Ports that another process holds, and sockets that connect to themselves.
#include "src/transport/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "src/base/error.h"
#include "src/transport/acceptor.h"
#include "tests/support/ports.h"

namespace weft::test {
namespace {

TEST(Listener, WaitsForAPortThatSomebodyIsAboutToLetGo) {
  const Address address = Address::loopback(free_port());
  uint16_t port = 0;
  Fd holder = listen_tcp(&address, port);
  std::thread lets_go([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    holder.reset();
  });
  EXPECT_TRUE(listen_tcp(&address, port, in_seconds(60)));
  EXPECT_EQ(port, address.port);
  lets_go.join();
}

TEST(Listener, NamesAPortThatStaysInUseAndMayTryAgainLater) {
  const Address address = Address::loopback(free_port());
  // Never destroyed, as the control thread watches it.
  Acceptor& acceptor = *std::make_unique<Acceptor>().release();
  {
    uint16_t port = 0;
    const Fd holder = listen_tcp(&address, port);
    for (int repeat = 0; repeat < 2; repeat++) {
      try {
        acceptor.listen_at(address, in_seconds(0.06));
        ADD_FAILURE() << "two listen at " << describe(address);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ncclSystemError);
        EXPECT_NE(std::string(error.what()).find(describe(address)), std::string::npos)
            << error.what();
      }
    }
  }
  acceptor.listen_at(address, in_seconds(60));
  EXPECT_TRUE(connect_tcp(address, in_seconds(60)));
}

TEST(RoundTrip, IsMeasuredBetweenAddressesAndNotOnOneMachine) {
  uint16_t port = 0;
  const Fd listener = listen_tcp(nullptr, port);
  const auto time_to = [&](uint32_t host) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(host);
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    return round_trip_us(fd.get());
  };
  EXPECT_EQ(time_to(INADDR_LOOPBACK), 0);
  // To another address it looks like another machine. The kernel has measured the handshake.
  EXPECT_GT(time_to(INADDR_LOOPBACK + 1), 0);
  EXPECT_LT(time_to(INADDR_LOOPBACK + 1), 1e6);
  EXPECT_EQ(round_trip_us(-1), 0);
}

TEST(SocketThatMeetsItself, IsKnownAndLetsThePortGoAtOnce) {
  const Address address = Address::loopback(free_port());
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  const auto* where = reinterpret_cast<sockaddr*>(&storage);
  {
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(fd.get(), where, size), 0);
    ASSERT_EQ(connect(fd.get(), where, size), 0);
    EXPECT_TRUE(is_connected_to_itself(fd.get()));
  }
  uint16_t port = 0;
  const Fd listener = listen_tcp(&address, port);
  const Fd other = connect_tcp(address, in_seconds(60));
  ASSERT_TRUE(other);
  EXPECT_FALSE(is_connected_to_itself(other.get()));
}

// Nobody listens at this port of the kernel's own range. Sooner or later the kernel gives that very
// port to the connecting socket.
TEST(SocketThatMeetsItself, IsNoConnection) {
  Address address = Address::loopback(0);
  {
    uint16_t port = 0;
    const Fd chosen = listen_tcp(&address, port);
    address.port = port ^ 1;  // Linux gives odd ports to listeners, even ones to connections
  }
  const Deadline enough = in_seconds(1);
  for (int i = 0; i < 20000 && std::chrono::steady_clock::now() < enough; i++) {
    const Fd fd = connect_tcp(address, in_seconds(10));
    if (fd) {
      ASSERT_FALSE(is_connected_to_itself(fd.get())) << "after " << i << " times";
    }
  }
}

}  // namespace
}  // namespace weft::test
