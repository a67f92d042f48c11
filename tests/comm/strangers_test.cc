// A job whose ports are held by strangers goes on, and new communicators still come up. Strangers
// that are turned away come back at once. WEFT_STRANGERS=10000 makes it the full measurement: that
// many connections, and a bar on speed.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "src/base/handles.h"
#include "src/comm/unique_id.h"
#include "tests/comm/checks.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;  // the process after them is the stranger
constexpr rlim_t kDescriptors = 256;

int wanted_strangers() {
  const char* text = std::getenv("WEFT_STRANGERS");
  return text == nullptr ? 1000 : std::atoi(text);
}
bool is_full() { return std::getenv("WEFT_STRANGERS") != nullptr; }
// Strangers come back together, 10 s after they came: a full window has a whole turn.
double window_seconds() { return is_full() ? 11 : 0.3; }

void put(const fs::path& path, const std::string& text) {
  std::ofstream(path.string() + ".new") << text;
  fs::rename(path.string() + ".new", path);
}

void wait_for(const fs::path& path) {
  while (!fs::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

uint16_t own_port() {
  ncclUniqueId id;
  WEFT_OK(ncclGetUniqueId(&id));
  UniqueId mine;
  std::memcpy(static_cast<void*>(&mine), &id, sizeof mine);
  return mine.addresses[0].port;
}

// All-reduces per second. Rank 0 says when the window ends: it adds 1 to the sum.
double measure(ncclComm_t comm, int rank) {
  std::vector<float> data(16384);
  const auto begin = Clock::now();
  double seconds = 0;
  int calls = 0;
  for (bool more = true; more; calls++) {
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::fill(data.begin(), data.end(), rank == 0 && seconds > window_seconds() ? 1.0F : 0.0F);
    const ncclResult_t result =
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclSum, comm, nullptr);
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(comm);
    more = result == ncclSuccess && data[0] == 0;
  }
  return calls / seconds;
}

void expect_new_communicators(ncclComm_t comm, int rank) {
  ncclComm_t part = nullptr;
  WEFT_OK(ncclCommSplit(comm, 0, rank, &part, nullptr));
  expect_all_reduce_works(part);
  WEFT_OK(ncclCommDestroy(part));
  ncclUniqueId id;  // its rendezvous is at a port that strangers hold
  if (rank == 0) {
    WEFT_OK(ncclGetUniqueId(&id));
  }
  WEFT_OK(ncclBroadcast(&id, &id, sizeof id, ncclUint8, 0, comm, nullptr));
  ncclComm_t fresh = nullptr;
  WEFT_OK(ncclCommInitRank(&fresh, kRanks, id, rank));
  expect_all_reduce_works(fresh);
  WEFT_OK(ncclCommDestroy(fresh));
}

void be_rank(const ProcessContext& context, const fs::path& folder) {
  const int rank = context.rank;
  const rlimit few{kDescriptors, kDescriptors};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  put(folder / ("port" + std::to_string(rank)), std::to_string(own_port()));
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, kRanks, context.ids[0], rank), ncclSuccess);
  measure(comm, rank);
  const double before = measure(comm, rank);
  put(folder / ("go" + std::to_string(rank)), "");
  wait_for(folder / "held");
  const double during = measure(comm, rank);
  expect_new_communicators(comm, rank);
  put(folder / ("done" + std::to_string(rank)), "");
  wait_for(folder / "gone");
  const double after = measure(comm, rank);
  const double ratio = during / ((before + after) / 2);
  std::printf("rank %d: %.0f calls/s before, %.0f among strangers, %.0f after: %.2f\n", rank,
              before, during, after, ratio);
  EXPECT_GT(ratio, is_full() ? 0.9 : 0.2);
  WEFT_OK(ncclCommDestroy(comm));
}

// Connections that say nothing, from the object's begin to its end. One that was dropped comes
// again. Connecting does not block, because the kernel's queue may be full.
class Strangers {
 public:
  explicit Strangers(std::vector<uint16_t> ports) : ports_(std::move(ports)) {
    held_.resize(static_cast<size_t>(wanted_strangers()));
    for (size_t i = 0; i < held_.size(); i++) {
      held_[i] = come(i);
      EXPECT_TRUE(held_[i]) << i;
    }
    thread_ = std::thread([this] { come_back(); });
  }
  ~Strangers() {
    over_ = true;
    thread_.join();
  }
  uint64_t times_back() const { return times_back_; }

 private:
  Fd come(size_t i) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(ports_[i % ports_.size()]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fd;
    connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    epoll_event event{};
    event.events = EPOLLRDHUP;  // and, always, EPOLLHUP and EPOLLERR
    event.data.u64 = i;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
    return fd;
  }
  // Sleeps until one is dropped, because the speed of the job is measured on the same machine.
  void come_back() {
    std::array<epoll_event, 256> events{};
    while (!over_) {
      const int n = epoll_wait(epoll_.get(), events.data(), events.size(), 100);
      for (int e = 0; e < n; e++) {
        const auto i = static_cast<size_t>(events[static_cast<size_t>(e)].data.u64);
        held_[i] = come(i);
        times_back_++;
      }
      // Not at once: a port that nobody listens at must not keep this thread busy.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  const std::vector<uint16_t> ports_;
  const Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Fd> held_;
  std::atomic<bool> over_{false};
  std::atomic<uint64_t> times_back_{0};
  std::thread thread_;
};

void be_stranger(const fs::path& folder) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<uint16_t> ports(kRanks);
  for (size_t rank = 0; rank < kRanks; rank++) {
    wait_for(folder / ("go" + std::to_string(rank)));
    std::ifstream(folder / ("port" + std::to_string(rank))) >> ports[rank];
  }
  {
    const Strangers strangers(ports);
    put(folder / "held", "");
    for (int rank = 0; rank < kRanks; rank++) wait_for(folder / ("done" + std::to_string(rank)));
    std::printf("%d strangers came back %llu times\n", wanted_strangers(),
                static_cast<unsigned long long>(strangers.times_back()));
  }
  put(folder / "gone", "");
}

WEFT_SCENARIO(strangers) {
  if (context.rank < kRanks)
    be_rank(context, context.argument);
  else
    be_stranger(context.argument);
}

TEST(Strangers, WhoHoldConnectionsDoNotStopAJob) {
  std::string folder = testing::TempDir() + "weft-strangers-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ProcessOptions options;
  options.argument = folder;
  const auto results = run_processes("strangers", kRanks + 1, options);
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::printf("%s", result.output.c_str());
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace weft::test
