// lane_wire_perf measures the host's part of what lanes send to GPUs of other hosts, without the
// GPUs: posts, proxies and sockets (src/transport/lane_stream.h). Ranks are processes. A thread in
// each plays the GPU: it posts messages to several peers, waits for theirs, and gives slots back,
// but moves no data. Two measurements:
//   rate   every rank sends to and receives from `peers` others, `ports` FIFOs to each
//   calls  every rank grants its peers a message, and sends one when it has been granted
// With few cores look at CPU time per GB, and count system calls (strace -f -c).
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugins/net_socket/plugin.h"
#include "src/base/handles.h"
#include "src/base/parallel_for.h"
#include "src/transport/lane_stream.h"
#include "src/transport/plugin_network.h"
#include "src/transport/proxy.h"

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 16;
constexpr size_t kWordsBytes = 1u << 20;

struct Settings {
  int ranks = 2, peers = 1, proxies = 0, reps = 5;
  uint32_t ports = 4, slots = 4, message = 256u << 10;
  uint32_t messages = 256;  // of each port, in a repetition
  uint32_t small = 1024;    // bytes of a message of `calls`
  int gap = 0;              // us before each of them, for work of the GPU
};

// Lies in memory that all ranks share.
struct Board {
  NetHandle handles[kMostRanks][kMostRanks][kLaneStreams];
  std::atomic<int> arrived{0};

  void meet(int ranks) {
    const int round = arrived.fetch_add(1) / ranks;
    while (arrived.load() < (round + 1) * ranks) usleep(50);
  }
};

double cpu_seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

// Posts as kernels do (lane_posts.cuh).
class Posts {
 public:
  explicit Posts(LanePostRing& ring) : ring_(ring) {}
  void post(const LanePost& post) {
    while (ticket_ - __atomic_load_n(&ring_.taken, __ATOMIC_ACQUIRE) >= kLanePosts) sched_yield();
    uint32_t words[sizeof post / 4];
    std::memcpy(words, &post, sizeof post);
    const auto flag = static_cast<uint32_t>(ticket_ + 1);
    PostedWords* to = ring_.posts[ticket_++ % kLanePosts];
    for (size_t i = 0; i < sizeof post / 8; i++) {
      __atomic_store_n(&to[i].data0, words[2 * i], __ATOMIC_RELAXED);
      __atomic_store_n(&to[i].data1, words[2 * i + 1], __ATOMIC_RELAXED);
      __atomic_store_n(&to[i].flag0, flag, __ATOMIC_RELEASE);
      __atomic_store_n(&to[i].flag1, flag, __ATOMIC_RELEASE);
    }
  }

 private:
  LanePostRing& ring_;
  uint64_t ticket_ = 0;
};

class Rank {
 public:
  Rank(const Settings& settings, int rank, Board& board)
      : s_(settings),
        rank_(rank),
        board_(board),
        pool_(size_t{s_.ports} * s_.slots * s_.message * static_cast<size_t>(s_.peers)),
        memory_(Mapping::anonymous(kWordsBytes + 2 * pool_)) {
    std::memset(memory_.data(), 1, memory_.size());
    std::memset(memory_.data(), 0, kWordsBytes);
    connect();
  }

  // Seconds: of `messages` messages of every port.
  double rate(uint32_t call) {
    board_.meet(s_.ranks);
    const auto begin = Clock::now();
    const size_t ports = s_.ports * peers_.size();
    std::vector<uint32_t> sent(ports, 0), taken(ports, 0);
    for (size_t left = 2 * ports; left > 0;) {
      bool moved = false;
      for (size_t i = 0; i < ports; i++) {
        const uint32_t head = count(kHeads, i, call);
        for (; sent[i] < s_.messages && sent[i] < head + s_.slots; moved = true) {
          send(i, call, ++sent[i]);
          if (sent[i] == s_.messages) left--;
        }
        for (const uint32_t tail = count(kTails, i, call); taken[i] < tail; moved = true) {
          LanePost credit = post_of(kHeads, i, call, ++taken[i]);
          stream(i).post(credit);
          if (taken[i] == s_.messages) left--;
        }
      }
      if (!moved) usleep(5);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Seconds: of a call in which every rank grants, is granted, sends and receives.
  double call(uint32_t call) {
    const auto begin = Clock::now();
    const size_t peers = peers_.size();
    const auto port = [&](size_t p) { return p * s_.ports; };
    for (size_t p = 0; p < peers; p++) stream(port(p)).post(post_of(kHeads, port(p), call, 1));
    for (size_t p = 0; p < peers; p++) {
      while (count(kHeads, port(p), call) < 1) sched_yield();
      LanePost post = post_of(kTails, port(p), call, 1);
      post.bytes = s_.small;
      post.to = pool_at(port(p));
      post.from = post.to + static_cast<uint32_t>(pool_);
      stream(port(p)).post(post);
    }
    for (size_t p = 0; p < peers; p++)
      while (count(kTails, port(p), call) < 1) sched_yield();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  enum Words : uint32_t { kTails, kHeads };

  // Words and FIFOs of a port are at the same places on both sides.
  uint32_t word_of(Words words, size_t port) const {
    return static_cast<uint32_t>(64 * (2 * port + words));
  }
  uint32_t pool_at(size_t port) const {
    return static_cast<uint32_t>(kWordsBytes + port * s_.slots * s_.message);
  }
  uint32_t count(Words words, size_t port, uint32_t call) const {
    const auto* at = reinterpret_cast<const uint64_t*>(memory_.data() + word_of(words, port));
    const uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return word >> 32 == call ? static_cast<uint32_t>(word) : 0;
  }
  // Peer p of a rank has it as its peer number peers - 1 - p.
  LanePost post_of(Words words, size_t port, uint32_t call, uint32_t value) const {
    const size_t p = port / s_.ports, theirs = peers_.size() - 1 - p;
    LanePost post;
    post.word = word_of(words, theirs * s_.ports + port % s_.ports);
    post.call = call;
    post.value = value;
    return post;
  }
  void send(size_t port, uint32_t call, uint32_t number) {
    LanePost post = post_of(kTails, port, call, number);
    const uint32_t slot = (number - 1) % s_.slots * s_.message;
    const size_t p = port / s_.ports, theirs = peers_.size() - 1 - p;
    post.bytes = s_.message;
    post.to = pool_at(theirs * s_.ports + port % s_.ports) + slot;
    post.from = pool_at(port) + slot + static_cast<uint32_t>(pool_);
    if (s_.message > kLaneInlineBytes) post.kind |= LanePost::kLarge;
    stream(port).post(post);
  }
  Posts& stream(size_t port) {
    return posts_[port / s_.ports * kLaneStreams + port % s_.ports % kLaneStreams];
  }

  void connect() {
    const auto network =
        built_in_table(net_socket::kNetV12, net_socket::kExtension).open(1, net_abi::kUndefined);
    const auto check = [&](ncclResult_t code) {
      if (code != ncclSuccess) throw std::runtime_error(network->reason());
    };
    // Distances are symmetric, so that the peers of a rank have it as a peer.
    for (int k = 1; k <= s_.peers; k++) {
      const int distance =
          s_.peers == s_.ranks - 1 || k <= (s_.peers + 1) / 2 ? k : s_.ranks - (s_.peers + 1 - k);
      peers_.push_back((rank_ + distance) % s_.ranks);
    }
    const size_t routes = peers_.size() * kLaneStreams;
    std::vector<void*> listeners(routes), outs(routes), ins(routes);
    const auto peer = [&](size_t i) { return peers_[i / kLaneStreams]; };
    for (size_t i = 0; i < routes; i++)
      check(network->listen(0, board_.handles[peer(i)][rank_][i % kLaneStreams], &listeners[i]));
    board_.meet(s_.ranks);
    std::vector<NetHandle> handles;  // connect() keeps its state there
    for (size_t i = 0; i < routes; i++)
      handles.push_back(board_.handles[rank_][peer(i)][i % kLaneStreams]);
    for (bool complete = false; !complete; usleep(200)) {
      complete = true;
      for (size_t i = 0; i < routes; i++) {
        if (outs[i] == nullptr) check(network->connect(0, handles[i], &outs[i]));
        if (ins[i] == nullptr) check(network->accept(listeners[i], &ins[i]));
        complete = complete && outs[i] != nullptr && ins[i] != nullptr;
      }
    }
    const int threads = proxy_threads(s_.proxies, true, usable_cores(), s_.ranks);
    LaneArea area{{memory_.data(), memory_.size()}, kWordsBytes, &sent_, nullptr, {}};
    const auto add = [&](const std::shared_ptr<NetStream>& stream) {
      stream->proxy().keep_polling(true);
      streams_.push_back(stream);
    };
    for (size_t i = 0; i < routes; i++) {
      auto out = std::make_shared<LaneOut>(NetComm(network, outs[i], NetComm::Kind::kSend),
                                           Proxy::next(threads), area, door_, nullptr);
      posts_.emplace_back(out->posts());
      add(out);
    }
    for (size_t i = 0; i < routes; i++) {
      add(std::make_shared<LaneIn>(NetComm(network, ins[i], NetComm::Kind::kReceive),
                                   Proxy::next(threads), area, door_, nullptr));
      network->close_listen(listeners[i]);
    }
    for (const auto& stream : streams_) stream->proxy().add(stream);
  }

  const Settings s_;
  const int rank_;
  Board& board_;
  const size_t pool_;
  Mapping memory_;  // words, what arrives, what leaves
  uint64_t sent_ = 0;
  Doorbell door_;
  std::vector<int> peers_;
  std::vector<Posts> posts_;
  std::vector<std::shared_ptr<NetStream>> streams_;
};

int play(const Settings& settings, int rank, Board& board) {
  alarm(120);  // if a rank fails, the others wait for it
  prctl(PR_SET_TIMERSLACK, 1000UL);
  try {
    Rank me(settings, rank, board);
    std::vector<double> times;
    uint32_t call = 0;
    me.rate(++call);
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    for (int rep = 0; rep < settings.reps; rep++) times.push_back(me.rate(++call));
    getrusage(RUSAGE_SELF, &after);
    std::sort(times.begin(), times.end());
    const double gb = 1e-9 * settings.message * settings.messages * settings.ports * settings.peers;
    const double seconds = times[times.size() / 2];
    if (rank == 0)
      std::printf(
          "rate: %.2f GB/s a rank each way, %.2f in all; CPU %.3f user, %.3f sys s/GB\n",
          gb / seconds, gb / seconds * settings.ranks,
          (cpu_seconds(after.ru_utime) - cpu_seconds(before.ru_utime)) / gb / settings.reps,
          (cpu_seconds(after.ru_stime) - cpu_seconds(before.ru_stime)) / gb / settings.reps);
    board.meet(settings.ranks);
    times.clear();
    for (int i = 0; i < 500; i++) {
      const auto end = Clock::now() + std::chrono::microseconds(settings.gap);
      while (Clock::now() < end) sched_yield();
      times.push_back(me.call(++call));
    }
    std::sort(times.begin(), times.end());
    if (rank == 0)
      std::printf("calls: median %.1f us, least %.1f us\n", times[times.size() / 2] * 1e6,
                  times[0] * 1e6);
    std::fflush(stdout);
    board.meet(settings.ranks);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lane_wire_perf: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int value = std::atoi(argv[i + 1]);
    const auto size = static_cast<uint32_t>(value);
    if (name == "--ranks") {
      settings.ranks = value;
    } else if (name == "--peers") {
      settings.peers = value;
    } else if (name == "--proxies") {
      settings.proxies = value;
    } else if (name == "--reps") {
      settings.reps = value;
    } else if (name == "--ports") {
      settings.ports = size;
    } else if (name == "--slots") {
      settings.slots = size;
    } else if (name == "--message") {
      settings.message = size;
    } else if (name == "--messages") {
      settings.messages = size;
    } else if (name == "--small") {
      settings.small = size;
    } else if (name == "--gap") {
      settings.gap = value;
    } else {
      throw std::invalid_argument(name);
    }
  }
  const bool symmetric = settings.peers == settings.ranks - 1 || settings.peers % 2 == 0;
  const uint64_t pool =
      uint64_t{settings.ports} * settings.slots * settings.message * settings.peers;
  if (argc % 2 == 0 || settings.ranks < 2 || settings.ranks > kMostRanks || settings.reps < 1 ||
      settings.peers < 1 || settings.peers >= settings.ranks || !symmetric || settings.ports < 1 ||
      settings.slots < 1 || settings.message < settings.small || settings.messages < 1 ||
      settings.message % 64 != 0 || 2 * pool + kWordsBytes > (uint64_t{1} << 32) ||
      128 * uint64_t{settings.ports} * settings.peers > kWordsBytes)
    throw std::invalid_argument("bad value");
  return settings;
}

int main(int argc, char** argv) {
  Settings settings;
  try {
    settings = parse(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr,
                 "lane_wire_perf: %s\nusage: lane_wire_perf [--ranks 2..16] [--peers N: even, or "
                 "all] [--proxies N, 0: chosen] [--ports N] [--slots N] [--message BYTES] "
                 "[--messages N] [--small BYTES] [--gap US] [--reps N]\n",
                 error.what());
    return 2;
  }
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  void* shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  Board& board = *new (shared) Board;
  std::printf("# %d ranks, %d peers each, %d proxies a rank, %u FIFOs to a peer, %u slots of %u\n",
              settings.ranks, settings.peers,
              proxy_threads(settings.proxies, true, usable_cores(), settings.ranks), settings.ports,
              settings.slots, settings.message);
  std::fflush(stdout);
  for (int rank = 0; rank < settings.ranks; rank++)
    if (fork() == 0) std::_Exit(play(settings, rank, board));
  int worst = 0;
  for (int status = 0; wait(&status) > 0;)
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  return worst;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) { return weft::perf::main(argc, argv); }
