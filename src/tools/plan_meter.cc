// See plan_meter.h. Ranks do exactly the same, so none waits for another in vain; what rank 0 makes
// of the times decides for all, through memory that child processes share.
#include "src/tools/plan_meter.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "src/base/error.h"
#include "src/comm/communicator.h"
#include "src/tools/rank_team.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr size_t kMostRanks = 8, kMostBatches = 16, kMostPlans = 12, kMostCollectives = 8,
                 kMostPoints = 12;
// A plan so much slower than the best of a large size is not tried at larger ones.
constexpr double kHopeless = 1.5;
// Until a rank gives up waiting for the others.
constexpr double kPatienceS = 60;
constexpr const char* kNotMine = "another rank has failed";
// CUDA's cudaStreamPerThread: kernels of different ranks must run side by side.
constexpr uintptr_t kOwnStream = 2;

struct Board {
  std::atomic<uint32_t> arrived{0}, generation{0};
  std::atomic<bool> failed{false}, late{false};
  std::array<std::array<bool, kMostPlans>, kMostCollectives> hopeless{};
  // Of the cell at hand, us.
  std::array<std::array<std::array<double, kMostRanks>, kMostBatches>, kMostPlans> times{};
  // 0: not timed.
  std::array<std::array<std::array<double, kMostPlans>, kMostCollectives>, kMostPoints> medians{};

  // All ranks, or nobody: throws where one has failed.
  void meet(int ranks) {
    const uint32_t now = generation.load();
    if (arrived.fetch_add(1) + 1 == static_cast<uint32_t>(ranks)) {
      arrived.store(0);
      generation.store(now + 1);
      return;
    }
    const auto begin = Clock::now();
    while (generation.load() == now) {
      if (failed.load() || seconds_since(begin) > kPatienceS) fail(ncclRemoteError, "{}", kNotMine);
      sched_yield();
    }
  }
};

class SharedBoard {
 public:
  SharedBoard()
      : board_(static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (board_ == MAP_FAILED) fail_errno(errno, "cannot share {} bytes", sizeof(Board));
    std::construct_at(board_);
  }
  ~SharedBoard() { munmap(board_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board& operator*() const { return *board_; }

 private:
  Board* board_;
};

// Buffers where the ranks' executor wants them.
class Memory {
 public:
  Memory(Communicator& communicator, uint64_t bytes) : device_(communicator.on_gpu()) {
    if (device_) {
      data_ = cuda::allocate(bytes);
    } else {
      host_.assign(bytes, std::byte{1});
      data_ = host_.data();
    }
  }
  ~Memory() {
    if (device_) cuda::release(data_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  const bool device_;
  void* data_ = nullptr;
  std::vector<std::byte> host_;
};

// One rank's part.
class Meter {
 public:
  Meter(Communicator& communicator, const MeterOrder& order, Board& board)
      : comm_(communicator),
        order_(order),
        board_(board),
        input_(communicator, order.points.back().bytes),
        output_(communicator, order.points.back().bytes) {}

  void measure_all() {
    const auto begin = Clock::now();
    for (size_t p = 0; p < order_.points.size(); p++)
      for (size_t c = 0; c < order_.collectives.size(); c++) {
        if (comm_.rank() == 0 && seconds_since(begin) > order_.seconds) board_.late = true;
        board_.meet(order_.ranks);
        if (board_.late) return;
        measure(p, c);
        board_.meet(order_.ranks);
        if (comm_.rank() == 0) evaluate(p, c);
      }
  }

 private:
  bool takes_part(size_t c, size_t plan) const {
    return order_.plans[plan]->supports({order_.collectives[c], order_.ranks, 0}) &&
           !board_.hopeless[c][plan];
  }

  void measure(size_t p, size_t c) {
    const MeterPoint& point = order_.points[p];
    Call call;
    call.kind = order_.collectives[c];
    call.input = input_.data();
    call.output = output_.data();
    call.stream = reinterpret_cast<cudaStream_t>(kOwnStream);
    call.count = 1;
    call.reduction.type = ncclFloat32;
    call.reduction.op = ncclSum;
    call.count = std::max<size_t>(1, point.bytes / array_bytes({call.kind, order_.ranks, 0}, call));
    // Roots take turns: calls from one root would overlap, and no hop would be seen.
    const int roots = Collective{call.kind, order_.ranks, 0}.rooted() ? order_.ranks : 1;
    const auto run_next = [&] {
      call.root = (call.root + 1) % roots;
      run(call);
    };
    const size_t plans = order_.plans.size();
    for (int batch = -1; batch < point.batches; batch++)  // the first one warms up
      for (size_t turn = 0; turn < plans; turn++) {
        // Nobody always follows the same one: what that leaves in the caches would favour some.
        const size_t plan = (turn + static_cast<size_t>(batch + 1)) % plans;
        if (!takes_part(c, plan)) continue;
        comm_.force_plan(call.kind, order_.plans[plan]);
        board_.meet(order_.ranks);
        // A call brings ranks into step better than the meeting does, where calls are short.
        for (int i = 0; i < (batch < 0 ? roots : point.calls > 1 ? 1 : 0); i++) run_next();
        if (batch < 0) {
          comm_.synchronize();
          continue;
        }
        const auto begin = Clock::now();
        for (int i = 0; i < point.calls; i++) run_next();
        comm_.synchronize();
        board_.times[plan][static_cast<size_t>(batch)][static_cast<size_t>(comm_.rank())] =
            seconds_since(begin) * 1e6 / point.calls;
      }
    comm_.force_plan(call.kind, nullptr);
  }

  // A batch takes as long as its slowest rank.
  void evaluate(size_t p, size_t c) {
    auto& medians = board_.medians[p][c];
    double best = 0;
    for (size_t plan = 0; plan < order_.plans.size(); plan++) {
      if (!takes_part(c, plan)) continue;
      std::vector<double> batches;
      for (int b = 0; b < order_.points[p].batches; b++) {
        const auto& ranks = board_.times[plan][static_cast<size_t>(b)];
        batches.push_back(*std::max_element(ranks.begin(), ranks.begin() + order_.ranks));
      }
      std::sort(batches.begin(), batches.end());
      medians[plan] = batches[batches.size() / 2];
      if (best == 0 || medians[plan] < best) best = medians[plan];
    }
    if (order_.points[p].bytes < kHopelessBytes) return;
    for (size_t plan = 0; plan < order_.plans.size(); plan++)
      if (medians[plan] > kHopeless * best) board_.hopeless[c][plan] = true;
  }

  void run(const Call& call) {
    if (comm_.on_gpu()) {
      const Call* calls[] = {&call};
      return comm_.launch(calls);
    }
    run_on_host(comm_, batch_, call);
  }

  Communicator& comm_;
  const MeterOrder& order_;
  Board& board_;
  Memory input_, output_;
  host::Batch batch_;
};

// Where ranks have cores of their own, two of them must not end up on one because others are busy.
void stay_on_core(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && seen++ == rank) CPU_SET(cpu, &one);
  if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof one, &one);
}

RankReport take_part(const MeterOrder& order, Board& board, int rank, const UniqueId& id) {
  try {
    if (order.ranks <= order.pin_cores) stay_on_core(rank);
    if (order.own_hosts) setenv("NCCL_HOSTID", fmt::format("weft calibrate {}", rank).c_str(), 1);
    Communicator communicator(id, rank, order.ranks,
                              fmt::format("rank {} of {}", rank, order.ranks), 0, 0, false, {});
    Meter(communicator, order, board).measure_all();
    return {};
  } catch (...) {
    board.failed = true;
    throw;
  }
}

}  // namespace

std::vector<PlanTime> time_plans(const MeterOrder& order) {
  if (order.points.empty() || order.points.size() > kMostPoints ||
      order.plans.size() > kMostPlans || order.collectives.size() > kMostCollectives ||
      order.ranks > static_cast<int>(kMostRanks))
    fail(ncclInternalError, "more plans, sizes or ranks than are timed together");
  SharedBoard shared;
  Board& board = *shared;
  const auto reports = run_team(order.ranks, order.processes, [&](int rank, const UniqueId& id) {
    return take_part(order, board, rank, id);
  });
  std::string why;
  for (const RankReport& report : reports)
    if (report.error[0] != '\0' && (why.empty() || why == kNotMine)) why = report.error;
  if (!why.empty()) fail(ncclInternalError, "{} ranks: {}", order.ranks, why);
  std::vector<PlanTime> found;
  for (size_t p = 0; p < order.points.size(); p++)
    for (size_t c = 0; c < order.collectives.size(); c++)
      for (size_t plan = 0; plan < order.plans.size(); plan++)
        if (board.medians[p][c][plan] > 0)
          found.push_back({order.collectives[c], order.plans[plan], order.points[p].bytes,
                           board.medians[p][c][plan]});
  return found;
}

}  // namespace weft
