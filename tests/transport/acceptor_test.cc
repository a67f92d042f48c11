// How peers get in. Only those with the secret are accepted, and nobody blocks the others.
#include "src/transport/acceptor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "src/base/error.h"
#include "tests/support/ports.h"

namespace weft::test {
namespace {

constexpr int kRank = 3;

// A second definition of the wire format. The acceptor must understand a client of another build.
struct Hello {
  uint32_t magic = 0x57454654, protocol = 5;
  uint64_t key = 0;
  Purpose purpose;
  uint8_t nonce[16] = {};
};
static_assert(sizeof(Hello) == 48);
struct Challenge {
  uint8_t nonce[16] = {};
  Proof proof{};
};

template <typename T>
std::span<std::byte> bytes(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// CPU time of the control thread so far.
double control_thread_seconds() {
  timespec time{};
  EventLoop::instance().run([&] { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); });
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Handshake : public testing::Test {
 protected:
  // An acceptor with short time limits. Never destroyed, because the control thread watches it.
  static Acceptor& acceptor() {
    static Acceptor& mine = *std::make_unique<Acceptor>(0.3).release();
    return mine;
  }

  void SetUp() override {
    secret_ = random_secret();
    purpose_.kind = Purpose::kStream;
    purpose_.from_rank = 1;
    purpose_.to_rank = kRank;
    purpose_.channel = 2;
    acceptor().serve(secret_, kRank,
                     [this](Fd connection, const Purpose& purpose, const Session& session) {
                       std::lock_guard lock(mutex_);
                       accepted_.emplace_back(std::move(connection), purpose);
                       sessions_.push_back(session);
                       changed_.notify_all();
                     });
  }
  void TearDown() override { acceptor().stop(secret_, kRank); }

  static Fd connection() {
    Fd fd = connect_tcp(Address::loopback(acceptor().port()), in_seconds(60));
    EXPECT_TRUE(fd);
    return fd;
  }
  size_t accepted() {
    std::lock_guard lock(mutex_);
    return accepted_.size();
  }
  // True when the acceptor closes the connection without sending anything more.
  static bool is_closed(int fd) {
    pollfd p{fd, POLLIN, 0};
    char byte = 0;
    return poll(&p, 1, 60000) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
  }
  Hello hello() const {
    Hello h;
    h.key = public_key(secret_);
    h.purpose = purpose_;
    return h;
  }

  Secret secret_;
  Purpose purpose_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<Fd, Purpose>> accepted_;
  std::vector<Session> sessions_;
};

TEST_F(Handshake, LetsInWhoKnowsTheSecretAndTellsWhatFor) {
  const Fd tcp = connection();
  ASSERT_TRUE(authenticate(tcp.get(), secret_, purpose_, in_seconds(60)));
  const Fd local = connect_unix(acceptor().unix_name());
  ASSERT_TRUE(authenticate(local.get(), secret_, purpose_, in_seconds(60)));
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(
      changed_.wait_for(lock, std::chrono::seconds(60), [&] { return accepted_.size() == 2; }));
  for (const auto& [fd, purpose] : accepted_) {
    EXPECT_EQ(purpose.kind, Purpose::kStream);
    EXPECT_EQ(purpose.from_rank, 1);
    EXPECT_EQ(purpose.channel, 2u);
    send_all(fd.get(), std::as_bytes(std::span("hi", 2)), in_seconds(60));
  }
  char word[2];
  receive_all(tcp.get(), std::as_writable_bytes(std::span(word)), in_seconds(60));
  EXPECT_EQ(std::string(word, 2), "hi");
}

TEST_F(Handshake, GivesBothEndsTheSameNewKeys) {
  const Fd one = connection(), two = connection();
  const auto first = authenticate(one.get(), secret_, purpose_, in_seconds(60));
  const auto second = authenticate(two.get(), secret_, purpose_, in_seconds(60));
  ASSERT_TRUE(first && second);
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(
      changed_.wait_for(lock, std::chrono::seconds(60), [&] { return sessions_.size() == 2; }));
  EXPECT_EQ(first->out, sessions_[0].in);
  EXPECT_EQ(first->in, sessions_[0].out);
  EXPECT_EQ(second->out, sessions_[1].in);
  EXPECT_EQ((std::set<SessionKey>{first->out, first->in, second->out, second->in}).size(), 4u);
}

TEST_F(Handshake, RefusesAnotherSecretAndAnotherRank) {
  EXPECT_FALSE(authenticate(connection().get(), random_secret(), purpose_, in_seconds(60)));
  purpose_.to_rank = kRank + 1;
  EXPECT_FALSE(authenticate(connection().get(), secret_, purpose_, in_seconds(60)));
  EXPECT_EQ(accepted(), 0u);
}

TEST_F(Handshake, RefusesWhoKnowsOnlyThePublicName) {
  const Fd fd = connection();
  Hello h = hello();
  send_all(fd.get(), bytes(h), in_seconds(60));
  Challenge challenge;
  receive_all(fd.get(), bytes(challenge), in_seconds(60));
  Proof proof{1, 2};
  send_all(fd.get(), bytes(proof), in_seconds(60));
  EXPECT_TRUE(is_closed(fd.get()));
  EXPECT_EQ(accepted(), 0u);
}

TEST_F(Handshake, RefusesTheServersOwnProofSentBack) {
  const Fd fd = connection();
  Hello h = hello();
  send_all(fd.get(), bytes(h), in_seconds(60));
  Challenge challenge;
  receive_all(fd.get(), bytes(challenge), in_seconds(60));
  send_all(fd.get(), bytes(challenge.proof), in_seconds(60));
  EXPECT_TRUE(is_closed(fd.get()));
  EXPECT_EQ(accepted(), 0u);
}

TEST_F(Handshake, AsksEveryoneSomethingElse) {
  Challenge challenges[2];
  for (Challenge& challenge : challenges) {
    const Fd fd = connection();
    Hello h = hello();
    send_all(fd.get(), bytes(h), in_seconds(60));
    receive_all(fd.get(), bytes(challenge), in_seconds(60));
  }
  EXPECT_NE(std::memcmp(challenges[0].nonce, challenges[1].nonce, 16), 0);
  EXPECT_NE(challenges[0].proof, challenges[1].proof);
}

TEST_F(Handshake, DropsWhoSpeaksAnotherLanguage) {
  for (int kind = 0; kind < 2; kind++) {
    const Fd fd = connection();
    Hello h = hello();
    if (kind == 0) h.magic = 0x20544547;  // "GET "
    if (kind == 1) fill_random(&h, sizeof h);
    send_all(fd.get(), bytes(h), in_seconds(60));
    EXPECT_TRUE(is_closed(fd.get())) << kind;
  }
  EXPECT_EQ(accepted(), 0u);
}

// The hello of another version may have another length.
TEST_F(Handshake, TellsAnotherVersionSo) {
  const Fd fd = connection();
  Hello h = hello();
  h.protocol = 99;
  send_all(fd.get(), bytes(h).first(8), in_seconds(60));
  Challenge answer;
  receive_all(fd.get(), bytes(answer), in_seconds(60));
  const Hello own;
  EXPECT_EQ(std::memcmp(answer.nonce, &own, 8), 0);
  EXPECT_EQ(answer.proof, Proof{});
  EXPECT_TRUE(is_closed(fd.get()));
}

TEST_F(Handshake, FailsAtOnceWhereAnotherVersionAnswers) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd client(ends[0]), server(ends[1]);
  Challenge answer;
  const uint32_t version[] = {Hello().magic, 99};
  std::memcpy(answer.nonce, version, sizeof version);
  send_all(server.get(), bytes(answer), in_seconds(60));
  std::string why;
  EXPECT_FALSE(authenticate(client.get(), secret_, purpose_, in_seconds(60), nullptr, &why));
  EXPECT_NE(why.find("its protocol is 99, here it is 5"), std::string::npos) << why;
}

TEST_F(Handshake, IsNotHeldUpByWhoSaysNothingAndDropsThemInTheEnd) {
  const Fd silent = connection(), slow = connection();
  Hello h = hello();
  send_all(slow.get(), bytes(h).first(10), in_seconds(60));
  EXPECT_TRUE(authenticate(connection().get(), secret_, purpose_, in_seconds(60)));
  EXPECT_TRUE(is_closed(silent.get()));
  EXPECT_TRUE(is_closed(slow.get()));
}

TEST_F(Handshake, LetsPeersInBetweenManyStrangersAndKeepsFewOfThem) {
  constexpr size_t kStrangers = 400;
  const size_t before = open_descriptors();
  std::vector<Fd> strangers;
  for (size_t i = 0; i < kStrangers; i++) strangers.push_back(connection());
  const Fd peer = connection();
  EXPECT_TRUE(authenticate(peer.get(), secret_, purpose_, in_seconds(60)));
  EXPECT_LE(open_descriptors(), before + kStrangers + Acceptor::most_pending() + 2);
}

TEST_F(Handshake, WaitsForADescriptorWithoutSpinning) {
  const Fd early = connection();
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(authenticate(early.get(), secret_, purpose_, in_seconds(60)));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{0, limit.rlim_max};  // what is open stays open
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  sockaddr_storage storage;
  const socklen_t size = Address::loopback(acceptor().port()).to_sockaddr(storage);
  const int connected = connect(client.get(), reinterpret_cast<sockaddr*>(&storage), size);
  const double cpu = control_thread_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double spent = control_thread_seconds() - cpu;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(connected, 0);
  EXPECT_LT(spent, 0.1);
  EXPECT_TRUE(authenticate(client.get(), secret_, purpose_, in_seconds(60)));
}

TEST_F(Handshake, IsOfferedOnlyAtTheInterfacesInUse) {
  Config config;
  config.socket_ifname = "=lo";
  config.socket_family = "AF_INET";
  const auto offered = acceptor().offer(config, 4);
  ASSERT_EQ(offered.size(), 1u);
  EXPECT_EQ(offered[0], Address::loopback(acceptor().port()));
  Address elsewhere = Address::loopback(acceptor().port());
  elsewhere.bytes[3] = 77;  // 127.0.0.77 is an address of this machine too
  EXPECT_FALSE(connect_tcp(elsewhere, in_seconds(60)));
}

TEST_F(Handshake, WorksByteByByte) {
  const Fd fd = connection();
  Hello h = hello();
  for (size_t i = 0; i < sizeof h; i++) send_all(fd.get(), bytes(h).subspan(i, 1), in_seconds(60));
  Challenge challenge;
  receive_all(fd.get(), bytes(challenge), in_seconds(60));  // the acceptor understood the request
}

TEST_F(Handshake, OfAStoppedServiceFails) {
  acceptor().stop(secret_, kRank);
  EXPECT_FALSE(authenticate(connection().get(), secret_, purpose_, in_seconds(60)));
}

// A server that does not know the secret, at the other end of a socket pair.
TEST_F(Handshake, MakesTheServerProveItselfToo) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd client(ends[0]), server(ends[1]);
  Challenge made_up;
  fill_random(&made_up, sizeof made_up);
  send_all(server.get(), bytes(made_up), in_seconds(60));
  EXPECT_FALSE(authenticate(client.get(), secret_, purpose_, in_seconds(60)));
  Hello seen;
  receive_all(server.get(), bytes(seen), in_seconds(60));
  EXPECT_EQ(seen.key, public_key(secret_)) << "all that was sent is public";
  uint8_t more = 0;
  EXPECT_EQ(recv(server.get(), &more, 1, MSG_DONTWAIT), -1)
      << "no proof for a server that gave none";
}

TEST_F(Handshake, GivesUpOnAServerThatSaysNothing) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd client(ends[0]), server(ends[1]);
  EXPECT_FALSE(authenticate(client.get(), secret_, purpose_, in_seconds(0.05)));
}

TEST(Sockets, WaitNoLongerThanTheirDeadline) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Fd one(ends[0]);
  const Fd other(ends[1]);
  std::vector<std::byte> data(64 << 20);
  try {
    receive_all(one.get(), std::span(data).first(1), in_seconds(0.05));
    ADD_FAILURE() << "received nothing from nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclSystemError);
  }
  EXPECT_THROW(send_all(one.get(), data, in_seconds(0.05)), Error) << "nobody reads";
  one.reset();
  try {
    for (;;) receive_all(other.get(), std::span(data), in_seconds(60));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclRemoteError) << "the peer is gone";
  }
}

TEST(Sockets, FindNobodyWhereNobodyListens) {
  const DeafPort port;
  EXPECT_FALSE(connect_tcp(Address::loopback(port.number()), in_seconds(60)));
  EXPECT_FALSE(connect_unix("weft-no-such-name"));
}

}  // namespace
}  // namespace weft::test
