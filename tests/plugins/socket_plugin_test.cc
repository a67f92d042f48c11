// The socket plugin alone: which peers it accepts, which address it takes, how it reports failures.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "plugins/common/connect.h"
#include "plugins/net_socket/receiver.h"
#include "plugins/net_socket/sender.h"
#include "plugins/net_socket/width.h"
#include "src/transport/socket.h"
#include "tests/support/ports.h"
#include "tests/support/sampling.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

using namespace net_common;  // NOLINT(google-build-using-namespace): it tests most of it
using namespace net_socket;  // NOLINT(google-build-using-namespace)

struct Pair {
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;
  std::string failure;
};

std::vector<Interface> loopback() {
  Config config;
  config.socket_ifname = "=lo";
  config.socket_family = "AF_INET";
  return find_interfaces(config);
}

Pair meet(Listener& listener, const Handle& handle, const Width& width,
          const std::optional<Secret>& secret, double seconds = 60, Wire wire = Wire::kPlain) {
  Pair pair;
  Connector connector(handle, width.sockets, secret, wire);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < deadline && !connector.failed() &&
         (pair.sender == nullptr || pair.receiver == nullptr)) {
    if (auto joined = pair.sender == nullptr ? connector.join() : std::nullopt)
      pair.sender = std::make_unique<Sender>(std::move(joined->sockets), width.threads,
                                             std::move(joined->peer), width.lends, width.fixed,
                                             joined->seals);
    if (auto joined = pair.receiver == nullptr ? listener.join() : std::nullopt)
      pair.receiver = std::make_unique<Receiver>(std::move(joined->sockets), width.threads,
                                                 std::move(joined->peer), joined->seals);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  pair.failure = connector.failure();
  return pair;
}

Width wide(uint16_t sockets, int threads) {
  Width width;
  width.sockets = sockets;
  width.threads = threads;
  width.fixed = true;
  return width;
}

TEST(Listener, LetsInWhoHasItsHandle) {
  Listener listener(loopback(), 0, std::nullopt);
  const Pair pair = meet(listener, listener.handle(), {}, std::nullopt);
  EXPECT_NE(pair.sender, nullptr);
  EXPECT_NE(pair.receiver, nullptr);
}

TEST(Listener, KeepsOutWhoLacksTheNonce) {
  Listener listener(loopback(), 0, std::nullopt);
  Handle forged = listener.handle();
  forged.nonce[3] ^= 1;
  const Pair pair = meet(listener, forged, {}, std::nullopt, 0.3);
  EXPECT_EQ(pair.sender, nullptr);
  EXPECT_EQ(pair.receiver, nullptr);
}

TEST(Listener, KeepsOutWhoLacksTheSecret) {
  const Secret secret = random_secret();
  Listener listener(loopback(), 0, secret);
  EXPECT_EQ(meet(listener, listener.handle(), {}, std::nullopt, 0.3).receiver, nullptr);
  EXPECT_EQ(meet(listener, listener.handle(), {}, random_secret(), 0.3).receiver, nullptr);
  EXPECT_NE(meet(listener, listener.handle(), {}, secret).receiver, nullptr);
}

TEST(Listener, IsNotDisturbedByStrangersWhoSayNothing) {
  Listener listener(loopback(), 0, std::nullopt);
  const Fd silent = connect_tcp(listener.handle().addresses[0], in_seconds(60));
  Fd gone = connect_tcp(listener.handle().addresses[0], in_seconds(60));
  gone.reset();
  EXPECT_NE(meet(listener, listener.handle(), {}, std::nullopt).receiver, nullptr);
}

TEST(Listener, OfSeveralAddressesTurnsAwayWhoComesToAnotherOne) {
  Interface two = loopback().front();
  two.addresses = {Address::loopback(0), Address::loopback(0)};
  two.addresses[1].bytes[3] = 2;
  Listener listener({two}, 0, std::nullopt);
  Handle second = listener.handle(), elsewhere = listener.handle();
  second.addresses[0] = second.addresses[1];
  second.addresses[1] = {};
  EXPECT_NE(meet(listener, second, {}, std::nullopt).receiver, nullptr);
  elsewhere.addresses[0].bytes[3] = 77;
  elsewhere.addresses[1] = {};
  EXPECT_EQ(meet(listener, elsewhere, {}, std::nullopt, 0.3).receiver, nullptr);
}

TEST(Listener, LetsAPeerInBetweenManyStrangers) {
  Listener listener(loopback(), 0, std::nullopt);
  std::vector<Fd> strangers;
  for (int i = 0; i < 200; i++)
    strangers.push_back(connect_tcp(listener.handle().addresses[0], in_seconds(60)));
  EXPECT_NE(meet(listener, listener.handle(), {}, std::nullopt).receiver, nullptr);
}

int open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST(Connector, ThatIsGivenUpHoldsNothing) {
  const auto network = loopback_network();
  NetHandle handle{};
  void *listener = nullptr, *comm = nullptr;
  ASSERT_EQ(network->listen(0, handle, &listener), ncclSuccess);
  const int before = open_descriptors();
  ASSERT_EQ(network->connect(0, handle, &comm), ncclSuccess);
  ASSERT_EQ(comm, nullptr) << "nobody has accepted it";
  EXPECT_GT(open_descriptors(), before);
  network->cancel(handle);
  EXPECT_EQ(open_descriptors(), before);
  network->cancel(handle);  // nothing is left to cancel
  EXPECT_EQ(network->close_listen(listener), ncclSuccess);
}

TEST(Connector, TriesTheNextAddressWhenOneLeadsNowhere) {
  Listener listener(loopback(), 0, std::nullopt);
  Handle handle = listener.handle();
  handle.addresses[2] = handle.addresses[0];
  // Nobody listens at one port. Somebody else answers at the other.
  const DeafPort nobody;
  handle.addresses[0] = Address::loopback(nobody.number());
  uint16_t port = 0;
  const Fd stranger = listen_tcp(nullptr, port);
  std::thread rude([&] { const Fd met(accept4(stranger.get(), nullptr, nullptr, 0)); });
  handle.addresses[1] = Address::loopback(port);
  const Pair pair = meet(listener, handle, {}, std::nullopt);
  shutdown(stranger.get(), SHUT_RDWR);
  rude.join();
  EXPECT_NE(pair.sender, nullptr) << pair.failure;
}

// All sizes around the limits of frames, the stash and stripes, several in flight.
void expect_messages_arrive(Pair& pair) {
  const std::vector<size_t> sizes = {0,      1,      64,      4079,   4080,   4096,
                                     4097,   65536,  70001,   131071, 131072, 196607,
                                     196608, 400000, 1500001, 3 << 20};
  std::vector<std::vector<uint8_t>> sent, received;
  for (size_t m = 0; m < sizes.size(); m++) {
    sent.emplace_back(sizes[m]);
    for (size_t i = 0; i < sizes[m]; i++) sent[m][i] = static_cast<uint8_t>(mix(m, i));
    received.emplace_back(sizes[m] + 100);
  }
  std::vector<Sender::Request*> sends;
  std::vector<Receiver::Request*> receives;
  for (size_t m = 0; m < sizes.size(); m++) {
    sends.push_back(pair.sender->start(nullptr, 0, sent[m].data(), sizes[m]));
    receives.push_back(pair.receiver->start(received[m].data(), received[m].size()));
    ASSERT_NE(sends.back(), nullptr);
    ASSERT_NE(receives.back(), nullptr);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  size_t open = 2 * sizes.size();
  while (open > 0 && std::chrono::steady_clock::now() < deadline) {
    for (size_t m = 0; m < sizes.size(); m++) {
      if (sends[m] != nullptr && pair.sender->complete(*sends[m])) sends[m] = nullptr, open--;
      if (receives[m] != nullptr && pair.receiver->complete(*receives[m])) {
        EXPECT_EQ(receives[m]->size, sizes[m]);
        receives[m] = nullptr;
        open--;
      }
    }
    std::this_thread::yield();
  }
  ASSERT_EQ(open, 0u);
  for (size_t m = 0; m < sizes.size(); m++) {
    received[m].resize(sizes[m]);
    EXPECT_TRUE(sent[m] == received[m]) << "message of " << sizes[m] << " bytes";
  }
}

TEST(Messages, ArriveWholeAndInOrderWhateverTheNumberOfSocketsAndThreads) {
  for (const Width& width : {Width{}, wide(2, 0), wide(4, 1), wide(4, 3), wide(7, 2)})
    for (const Wire wire : {Wire::kPlain, Wire::kCheck, Wire::kEncrypt}) {
      Listener listener(loopback(), 0, std::nullopt, wire);
      Pair pair = meet(listener, listener.handle(), width, std::nullopt, 60, wire);
      ASSERT_NE(pair.sender, nullptr);
      ASSERT_NE(pair.receiver, nullptr);
      const int rounds = wire == Wire::kPlain ? 3 : 1;
      for (int round = 0; round < rounds; round++) expect_messages_arrive(pair);
    }
}

// Sleeps until `complete()`. If it is complete and nothing woke the sleeper, a wake-up is lost.
// Then it no longer sleeps.
template <typename Side, typename Complete>
void sleep_until(const Side& side, Complete complete, bool& lost) {
  while (!complete()) {
    pollfd waits[4];
    const int count = lost ? 0 : side.waits_for(waits, 4);
    if (poll(waits, static_cast<nfds_t>(count), lost ? 0 : 20000) == 0 && !lost && complete()) {
      lost = true;
      return;
    }
  }
}

void expect_to_be_woken(const Width& width, Wire wire = Wire::kPlain) {
  Listener listener(loopback(), 0, std::nullopt, wire);
  Pair pair = meet(listener, listener.handle(), width, std::nullopt, 60, wire);
  ASSERT_NE(pair.sender, nullptr);
  ASSERT_NE(pair.receiver, nullptr);
  constexpr int kMessages = 60;
  constexpr size_t kBytes = 600'000;
  const std::vector<char> from(kBytes, 7);
  std::vector<char> to(kBytes);
  bool send_lost = false, receive_lost = false;
  std::thread sender([&] {
    for (int m = 0; m < kMessages; m++) {
      auto* request = pair.sender->start(nullptr, 0, from.data(), kBytes);
      sleep_until(
          *pair.sender, [&] { return pair.sender->complete(*request); }, send_lost);
    }
  });
  for (int m = 0; m < kMessages; m++) {
    auto* request = pair.receiver->start(to.data(), kBytes);
    sleep_until(
        *pair.receiver, [&] { return pair.receiver->complete(*request); }, receive_lost);
  }
  sender.join();
  EXPECT_FALSE(send_lost);
  EXPECT_FALSE(receive_lost);
}

TEST(Messages, WakeWhoSleepsOnThemAlsoWhenTheConnectionsThreadsCompleteThem) {
  expect_to_be_woken(wide(3, 2));
}
TEST(Messages, WakeWhoSleepsOnThemAlsoWhenTheyAreLent) { expect_to_be_woken({}); }
TEST(Messages, WakeWhoSleepsOnThemAlsoWhenTheyAreSealed) {
  expect_to_be_woken({}, Wire::kCheck);
  expect_to_be_woken(wide(3, 2), Wire::kEncrypt);
}

// A message to a peer on this machine, long enough to be lent.
class Loans : public testing::Test {
 protected:
  static constexpr size_t kBytes = 200'000;  // fits into a socket whose reader sleeps

  void SetUp() override {
    pair_ = meet(listener_, listener_.handle(), width_, std::nullopt);
    ASSERT_NE(pair_.sender, nullptr);
    ASSERT_NE(pair_.receiver, nullptr);
  }

  // Puts the whole message into the socket.
  Sender::Request* send_all() {
    Sender::Request* request = pair_.sender->start(nullptr, 0, from_.data(), kBytes);
    for (int i = 0; i < 100; i++) {
      EXPECT_FALSE(pair_.sender->complete(*request)) << "nobody has read it";
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(request->stripes_left.load(), 0u);
    return request;
  }
  void receive_all() {
    Receiver::Request* request = pair_.receiver->start(to_.data(), kBytes);
    while (!pair_.receiver->complete(*request)) ASSERT_FALSE(pair_.receiver->broken());
  }
  // Whether the sender learns that the message was read.
  bool comes_back(Sender::Request& request) {
    for (int i = 0; i < 20000 && !pair_.sender->broken(); i++) {
      if (pair_.sender->complete(request)) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }

  const Width width_{};
  Listener listener_{loopback(), 0, std::nullopt};
  Pair pair_;
  std::vector<char> from_ = std::vector<char>(kBytes, 7), to_ = std::vector<char>(kBytes);
};

TEST_F(Loans, EndWhenThePeerHasReadTheMessage) {
  Sender::Request* request = send_all();
  from_[kBytes / 2] = 9;  // there is no other copy of the data
  receive_all();
  EXPECT_EQ(to_[0], 7);
  EXPECT_EQ(to_[kBytes / 2], 9);
  EXPECT_TRUE(comes_back(*request));
}

TEST_F(Loans, EndWithAPeerThatCloses) {
  Sender::Request* request = send_all();
  pair_.receiver.reset();
  EXPECT_FALSE(comes_back(*request));
  EXPECT_TRUE(pair_.sender->broken());
}

TEST_F(Loans, ToAPeerThatHasClosedFailWithoutASignal) {
  pair_.receiver.reset();
  for (int i = 0; i < 20 && !pair_.sender->broken(); i++) {
    pair_.sender->start(nullptr, 0, from_.data(), kBytes);  // SIGPIPE would end this process
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(pair_.sender->broken());
}

TEST_F(Loans, AreCopiesWhereNothingCanBeLent) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);  // no pipe
  Sender::Request* request = send_all();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  from_[kBytes / 2] = 9;
  receive_all();
  EXPECT_EQ(to_[kBytes / 2], 7);
  EXPECT_TRUE(comes_back(*request));
}

TEST(Messages, ThatDoNotFitAreAnError) {
  const auto network = loopback_network();
  auto [sender, receiver] = connect_pair(network);
  std::vector<char> from(100), to(50);
  EXPECT_THROW(transfer(sender, receiver, from.data(), 100, to.data(), 50), std::runtime_error);
  EXPECT_NE(network->reason().find("does not fit"), std::string::npos) << network->reason();
}

TEST(Messages, FromAPeerThatClosedAreARemoteErrorThatNamesIt) {
  const auto network = loopback_network();
  auto [sender, receiver] = connect_pair(network);
  sender = {};
  char byte = 0;
  void* request = nullptr;
  ASSERT_EQ(network->irecv(receiver.get(), &byte, 1, nullptr, &request), ncclSuccess);
  bool done = false;
  size_t size = 0;
  ncclResult_t code = ncclSuccess;
  for (int i = 0; i < 20000 && code == ncclSuccess; i++) {
    code = network->test(request, done, size);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_EQ(code, ncclRemoteError);
  EXPECT_NE(network->reason().find("closed it"), std::string::npos) << network->reason();
}

TEST(Stripes, CoverAMessageWithoutGapsOrOverlap) {
  for (uint64_t size : {0ul, 1ul, 4096ul, 100000ul, 1048577ul})
    for (uint32_t count : {1u, 2u, 3u, 8u}) {
      uint64_t at = 0;
      for (uint32_t i = 0; i < count; i++) {
        const Stripe stripe = stripe_of(size, count, i);
        EXPECT_EQ(stripe.begin, at);
        EXPECT_GE(stripe.end, stripe.begin);
        at = stripe.end;
      }
      EXPECT_EQ(at, size);
    }
}

}  // namespace
}  // namespace weft::test
