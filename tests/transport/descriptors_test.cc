// Lends file descriptors to another process through a unix socket.
#include "src/transport/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "src/base/error.h"
#include "src/transport/acceptor.h"
#include "src/transport/memory_link.h"

namespace weft::test {
namespace {

Descriptors::Lent memory_with(const std::string& text) {
  Fd fd = make_memfd("weft-test", 4096);
  const Mapping view = Mapping::shared(fd.get(), 4096);
  std::memcpy(view.data(), text.c_str(), text.size() + 1);
  return {std::move(fd), 4096};
}

std::string text_in(const Fd& fd) {
  return reinterpret_cast<const char*>(Mapping::shared(fd.get(), 4096).data());
}

std::vector<Descriptors::Lent> three() {
  std::vector<Descriptors::Lent> all;
  for (const char* text : {"one", "two", "three"}) all.push_back(memory_with(text));
  return all;
}

// The peer's process is stopped: it takes the connection and says nothing.
TEST(MemoryLink, CanBeCancelledWhileThePeerIsSilent) {
  const std::string name = "weft-test-of-a-silent-peer-" + std::to_string(getpid());
  const Fd silent = listen_unix(name);
  const auto begun = std::chrono::steady_clock::now();
  const auto cancelled = [&] {
    return std::chrono::steady_clock::now() - begun > std::chrono::milliseconds(200);
  };
  EXPECT_THROW(MemoryLink(name, Secret{}, 0, 1, in_seconds(30), cancelled), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15));
}

// A peer that was stopped for a while answers when nobody waits any more.
TEST(MemoryLink, GoesOnAfterALateAnswerWithoutTakingItForTheNext) {
  constexpr int kLender = 2, kBorrower = 5;
  const Secret secret = random_secret();
  std::promise<Fd> accepted;
  Acceptor::instance().serve(secret, kLender, [&](Fd connection, const Purpose&, const Session&) {
    accepted.set_value(std::move(connection));
  });
  MemoryLink link(Acceptor::instance().unix_name(), secret, kBorrower, kLender, in_seconds(60));
  Fd peer = accepted.get_future().get();
  const auto request = [&] {
    uint64_t id = 0;
    receive_all(peer.get(), std::as_writable_bytes(std::span(&id, 1)), in_seconds(60));
    return id;
  };
  const auto answer = [&](const std::string& text) {
    const Descriptors::Lent memory = memory_with(text);
    EXPECT_TRUE(send_descriptor(peer.get(), memory.size, memory.fd.get()));
  };
  EXPECT_THROW(link.fetch_arena(ArenaLayout{1, 4096}, in_seconds(0.05)), Error);
  const auto begun = std::chrono::steady_clock::now();
  for (int tries = 0; tries < 3; tries++) EXPECT_THROW(link.borrow(2), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(9))
      << "a request that waits in vain for a late answer does not wait for 10 s";
  EXPECT_EQ(request(), 0u);
  answer("late");
  auto borrowed = std::async(std::launch::async, [&] { return link.borrow(4); });
  EXPECT_EQ(request(), 4u) << "requests that failed were not sent";
  answer("of request 4");
  EXPECT_EQ(text_in(borrowed.get().first), "of request 4");
  peer.reset();
  for (int tries = 0; tries < 2; tries++) EXPECT_THROW(link.borrow(6), Error);
  Acceptor::instance().stop(secret, kLender);
}

TEST(Descriptors, AreFoundByTheirNumbersUntilTheyAreTakenBack) {
  Descriptors& descriptors = Descriptors::instance();
  const uint64_t first = descriptors.lend(three()), second = descriptors.lend(three());
  ASSERT_NE(first, 0u);
  ASSERT_NE(second, 0u);
  const auto is_there = [&](uint64_t id) {
    return descriptors.share(id, [](int fd, size_t size) {
      EXPECT_GE(fd, 0);
      EXPECT_EQ(size, 4096u);
    });
  };
  for (uint64_t n = 0; n < 3; n++) {
    EXPECT_TRUE(is_there(first + n * Descriptors::kStep));
    EXPECT_TRUE(is_there(second + n * Descriptors::kStep));
  }
  EXPECT_FALSE(is_there(second + 3 * Descriptors::kStep));
  EXPECT_FALSE(is_there(first - Descriptors::kStep));
  EXPECT_FALSE(is_there(first + 1)) << "odd numbers belong to segments";
  descriptors.take_back(first);
  EXPECT_FALSE(is_there(first));
  EXPECT_FALSE(is_there(first + Descriptors::kStep));
  EXPECT_TRUE(is_there(second));
  descriptors.take_back(second);
  EXPECT_FALSE(is_there(second));
}

TEST(Descriptors, LeaveMostOfTheFilesToTheProgram) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 64);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<uint64_t> lent;
  while (lent.size() < 64) {
    std::vector<Descriptors::Lent> one(1);
    one[0].size = 1;
    lent.push_back(Descriptors::instance().lend(std::move(one)));
    if (lent.back() == 0) break;
  }
  EXPECT_EQ(lent.back(), 0u);
  EXPECT_EQ(lent.size() - 1, few.rlim_cur / 4);
  for (const uint64_t id : lent) Descriptors::instance().take_back(id);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Descriptors, AreBorrowedOverALink) {
  constexpr int kLender = 2, kBorrower = 5;
  const Secret secret = random_secret();
  MemoryServer server(std::make_shared<Arena>(ArenaLayout{1, 4096}, true));
  Acceptor::instance().serve(secret, kLender, [&](Fd connection, const Purpose&, const Session&) {
    server.add(std::move(connection));
  });
  MemoryLink link(Acceptor::instance().unix_name(), secret, kBorrower, kLender, in_seconds(60));
  const uint64_t first = Descriptors::instance().lend(three());
  for (const auto& [n, text] :
       std::vector<std::pair<uint64_t, std::string>>{{2, "three"}, {0, "one"}, {1, "two"}}) {
    const auto [fd, size] = link.borrow(first + n * Descriptors::kStep);
    ASSERT_TRUE(fd);
    EXPECT_EQ(size, 4096u);
    EXPECT_EQ(text_in(fd), text);
  }
  Descriptors::instance().take_back(first);
  EXPECT_FALSE(link.borrow(first).first);
  const uint64_t again = Descriptors::instance().lend(three());
  EXPECT_TRUE(link.borrow(again).first) << "the link survives a request for what is gone";
  Descriptors::instance().take_back(again);
  Acceptor::instance().stop(secret, kLender);
}

// Even if that user knows the secret.
TEST(Descriptors, AreNotLentToAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  constexpr int kLender = 3, kBorrower = 4;
  const Secret secret = random_secret();
  std::atomic<int> served{0};
  Acceptor::instance().serve(secret, kLender,
                             [&](Fd, const Purpose&, const Session&) { served++; });
  const std::string name = Acceptor::instance().unix_name();
  std::thread([&] {
    // The system call changes this thread only.
    ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
    EXPECT_THROW(MemoryLink(name, secret, kBorrower, kLender, in_seconds(5)), Error);
  }).join();
  EXPECT_EQ(served, 0);
  const MemoryLink own(name, secret, kBorrower, kLender, in_seconds(60));
  Acceptor::instance().stop(secret, kLender);
}

}  // namespace
}  // namespace weft::test
