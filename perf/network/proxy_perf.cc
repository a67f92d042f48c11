// proxy_perf measures the host's part of an all_reduce between GPUs of different hosts, without the
// GPUs. Ranks are processes. A thread in each plays the GPU: it runs the same verified program
// through the same FIFOs, but moves no data, as if copies took no time. Only proxies, sockets and
// the network remain, so no all_reduce between GPUs can take less time. It helps to choose the
// number of proxies and the sizes of FIFOs and slices on a machine, with or without a GPU. If there
// are few cores, look at the proxies' CPU time per byte that a rank sends and receives. Idle
// polling is user time; real work is kernel time.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/generators/generators.h"
#include "plugins/net_socket/plugin.h"
#include "src/base/handles.h"
#include "src/base/parallel_for.h"
#include "src/exec/host/target.h"
#include "src/exec/interpreter.h"
#include "src/planner/selection.h"
#include "src/schedule/lower.h"
#include "src/transport/net_stream.h"
#include "src/transport/plugin_network.h"
#include "src/transport/proxy.h"

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 8, kMostChannels = 4;
constexpr size_t kSizes[] = {8u << 10, 64u << 10, 1u << 20, 16u << 20, 128u << 20};

struct Settings {
  int ranks = 2, proxies = 0, reps = 9;
  size_t ring = 1u << 20, slice = 4 * 65408;  // the library's defaults
  std::string plan;                           // empty: the library's plan between GPUs
};

// Lies in memory that all ranks share.
struct Board {
  NetHandle handles[kMostRanks][kMostRanks][kMostChannels];
  std::atomic<int> arrived{0};

  void meet(int ranks) {
    const int round = arrived.fetch_add(1) / ranks;
    while (arrived.load() < (round + 1) * ranks) sched_yield();
  }
};

// CPU time of a process's proxies: of all threads but the calling one, which plays the GPU.
struct CpuTime {
  double user = 0, system = 0;

  static CpuTime now() {
    rusage all{}, mine{};
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &mine);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return {seconds(all.ru_utime) - seconds(mine.ru_utime),
            seconds(all.ru_stime) - seconds(mine.ru_stime)};
  }
};

struct Result {
  double us = 0;  // median time of a call
  CpuTime spent;  // seconds per GB
};

// The memory operations of a GPU that the host sees.
struct IdleTarget : host::HostTarget {
  static void ring(const Bell&) {}
  template <typename... Args>
  static void combine(Args&&...) {}
};

class Rank {
 public:
  Rank(const Settings& settings, int rank, Board& board)
      : settings_(settings), rank_(rank), board_(board) {
    connect();
  }

  Result time(size_t bytes) {
    const Program program = program_for(bytes);
    std::vector<double> times;
    const int calls = bytes <= (1u << 20) ? 50 : 2;
    const CpuTime before = CpuTime::now();
    for (int rep = 0; rep < settings_.reps; rep++) {
      board_.meet(settings_.ranks);
      const auto begin = Clock::now();
      for (int call = 0; call < calls; call++) run(program, bytes);
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
                      calls);
    }
    const CpuTime after = CpuTime::now();
    const double n = settings_.ranks;
    const double gigabytes =
        static_cast<double>(bytes) * 1e-9 * 2 * (n - 1) / n * calls * settings_.reps;
    std::sort(times.begin(), times.end());
    return {times[times.size() / 2],
            {(after.user - before.user) / gigabytes, (after.system - before.system) / gigabytes}};
  }

 private:
  Program program_for(size_t bytes) const {
    const Collective c{CollectiveKind::kAllReduce, settings_.ranks, 0};
    Placement placement;
    placement.one_host = false;
    placement.multi_connection = kMultiConnection.supports(c);
    const Generator* forced = settings_.plan.empty() ? nullptr : find_generator(settings_.plan);
    return lower(verify(choose_generator(c, bytes, placement, forced).make(c, false), false),
                 rank_);
  }

  // Slices as the communicator does.
  void run(const Program& program, size_t bytes) {
    Operation op;
    op.program = program.view();
    op.element = 4;
    op.count = bytes / op.element;
    op.chunk = (op.count + static_cast<uint64_t>(program.chunks) - 1) /
               static_cast<uint64_t>(program.chunks);
    op.slice = std::min(settings_.slice, settings_.ring / 4 - kFifoAlign) / op.element;
    op.iterations = std::max<uint64_t>(1, (op.chunk + op.slice - 1) / op.slice);
    op.slice = (op.chunk + op.iterations - 1) / op.iterations;
    op.sequence = ++calls_;
    op.share_from = kShareFrom;
    op.share_below = kShareBelow;
    std::vector<SendPort*> sends;
    std::vector<RecvPort*> receives;
    for (const ProgramPort& port : program.sends)
      sends.push_back(&sends_[{port.peer, port.channel}]);
    for (const ProgramPort& port : program.receives)
      receives.push_back(&receives_[{port.peer, port.channel}]);
    op.sends = sends.data();
    op.receives = receives.data();
    std::vector<uint64_t> progress(program.lanes.size(), 0);
    op.progress = progress.data();
    std::vector<LaneState> lanes(program.lanes.size());
    for (size_t l = 0; l < lanes.size(); l++) lanes[l].lane = static_cast<uint32_t>(l);
    IdleTarget target;
    Interpreter<IdleTarget> interpreter(op, target);
    std::vector<bool> done(lanes.size(), false);
    for (size_t left = lanes.size(); left > 0;) {
      for (size_t l = 0; l < lanes.size(); l++) {
        if (done[l]) continue;
        const Advance outcome = interpreter.advance(lanes[l]);
        if (outcome == Advance::kFailed) throw std::runtime_error("ranks are out of step");
        if (outcome != Advance::kDone) continue;
        done[l] = true;
        left--;
      }
      // The launching thread of a real rank waits too. It yields only if there are few cores.
      if (crowded_) sched_yield();
    }
  }

  void connect() {
    const auto network =
        built_in_table(net_socket::kNetV12, net_socket::kExtension).open(1, net_abi::kUndefined);
    const auto check = [&](ncclResult_t code) {
      if (code != ncclSuccess) throw std::runtime_error(network->reason());
    };
    struct Route {
      int peer, channel;
      NetHandle handle;
      void *listener, *out, *in;
    };
    std::vector<Route> routes;
    for (int peer = 0; peer < settings_.ranks; peer++)
      for (int channel = 0; peer != rank_ && channel < kMostChannels; channel++) {
        Route& route = routes.emplace_back(Route{peer, channel, {}, nullptr, nullptr, nullptr});
        check(network->listen(0, board_.handles[peer][rank_][channel], &route.listener));
      }
    board_.meet(settings_.ranks);
    for (Route& route : routes) route.handle = board_.handles[rank_][route.peer][route.channel];
    for (bool complete = false; !complete;) {
      complete = true;
      for (Route& route : routes) {
        if (route.out == nullptr) check(network->connect(0, route.handle, &route.out));
        if (route.in == nullptr) check(network->accept(route.listener, &route.in));
        complete = complete && route.out != nullptr && route.in != nullptr;
      }
      usleep(200);
    }
    const int threads = proxy_threads(settings_.proxies, true, usable_cores(), settings_.ranks);
    const auto add = [&](auto stream) {
      stream->proxy().add(stream);
      stream->proxy().keep_polling(true);
      streams_.push_back(std::move(stream));
    };
    for (const Route& route : routes) {
      auto stream =
          std::make_shared<OutStream>(NetComm(network, route.out, NetComm::Kind::kSend),
                                      Proxy::next(threads), settings_.ring, door_, nullptr);
      SendPort& port = sends_[{route.peer, route.channel}] = stream->port(route.peer);
      port.lending = Lending::kNever;
      port.stream_data = reinterpret_cast<uint64_t>(port.data);
      add(std::move(stream));
    }
    for (const Route& route : routes) {
      auto stream =
          std::make_shared<InStream>(NetComm(network, route.in, NetComm::Kind::kReceive),
                                     Proxy::next(threads), settings_.ring, door_, nullptr);
      RecvPort& port = receives_[{route.peer, route.channel}] = stream->port(route.peer);
      port.direct = false;
      add(std::move(stream));
      network->close_listen(route.listener);
    }
  }

  const Settings settings_;
  const int rank_;
  Board& board_;
  const bool crowded_ = settings_.ranks * 2 > static_cast<int>(std::thread::hardware_concurrency());
  Doorbell door_;
  std::map<std::pair<int, int>, SendPort> sends_;
  std::map<std::pair<int, int>, RecvPort> receives_;
  std::vector<std::shared_ptr<NetStream>> streams_;
  uint64_t calls_ = 0;
};

int play(const Settings& settings, int rank, Board& board) {
  alarm(120);  // if a rank fails, the others wait for it
  try {
    Rank me(settings, rank, board);
    for (const size_t bytes : kSizes) {
      const Result result = me.time(bytes);
      const double n = settings.ranks;
      if (rank == 0)
        std::printf("  %12zu  %10.1f  %8.2f  %10.3f  %10.3f\n", bytes, result.us,
                    static_cast<double>(bytes) / result.us * 1e-3 * 2 * (n - 1) / n,
                    result.spent.user, result.spent.system);
      std::fflush(stdout);
    }
    board.meet(settings.ranks);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "proxy_perf: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (name == "--ranks") {
      settings.ranks = value;
    } else if (name == "--proxies") {
      settings.proxies = value;
    } else if (name == "--reps") {
      settings.reps = value;
    } else if (name == "--ring") {
      settings.ring = static_cast<size_t>(value);
    } else if (name == "--slice") {
      settings.slice = static_cast<size_t>(value);
    } else if (name == "--plan") {
      settings.plan = argv[i + 1];
    } else {
      throw std::invalid_argument(name);
    }
  }
  if (argc % 2 == 0 || settings.ranks < 2 || settings.ranks > kMostRanks || settings.reps < 1 ||
      settings.slice < 64 || settings.ring < 4 * (settings.slice / 2) ||
      (!settings.plan.empty() && find_generator(settings.plan) == nullptr))
    throw std::invalid_argument("bad value");
  return settings;
}

int main(int argc, char** argv) {
  Settings settings;
  try {
    settings = parse(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(
        stderr,
        "proxy_perf: %s\nusage: proxy_perf [--ranks 2..8] [--proxies N, 0: chosen] [--plan "
        "GENERATOR] [--ring BYTES] [--slice BYTES] [--reps N]\n",
        error.what());
    return 2;
  }
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  void* shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  Board& board = *new (shared) Board;
  std::printf(
      "# all_reduce between %d ranks, host side only: %d proxies a rank, rings of %zu, slices of "
      "%zu "
      "bytes, plan %s\n# %12s  %10s  %8s  %10s  %10s\n",
      settings.ranks, proxy_threads(settings.proxies, true, usable_cores(), settings.ranks),
      settings.ring, settings.slice, settings.plan.empty() ? "chosen" : settings.plan.c_str(),
      "size(B)", "time(us)", "busbw", "user(s/GB)", "sys(s/GB)");
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
