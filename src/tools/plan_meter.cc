// See plan_meter.h. All ranks run the same calls, so none waits in vain. Rank 0 evaluates the times
// and decides for all, through memory that child processes share.
#include "src/tools/plan_meter.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "src/base/error.h"
#include "src/comm/communicator.h"
#include "src/tools/interleaved_timing.h"
#include "src/tools/rank_team.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr size_t kMostRanks = 8, kMostBatches = 16, kMostPlans = 12, kMostCollectives = 8,
                 kMostPoints = 12;
// A plan this much slower than the best at a large size is not timed at larger sizes. Larger sizes
// change the order of plans less, and take longer.
double hopeless(uint64_t bytes) { return bytes < (16u << 20) ? 1.5 : 1.25; }
constexpr auto kMapping = std::chrono::milliseconds(100);
constexpr uint64_t kMappedBytes = 256 << 10;
constexpr const char* kNotMine = "another rank has failed";
// CUDA's cudaStreamPerThread: kernels of different ranks must run in parallel.
constexpr uintptr_t kOwnStream = 2;

struct Board {
  Meeting meeting;
  std::atomic<bool> late{false};
  std::array<std::array<bool, kMostPlans>, kMostCollectives> hopeless{};
  // Of the current cell.
  std::array<std::array<std::array<Lap, kMostRanks>, kMostBatches>, kMostPlans> laps{};
  // us; 0: not timed.
  std::array<std::array<std::array<double, kMostPlans>, kMostCollectives>, kMostPoints> medians{};

  // All ranks or none: throws if a rank has failed.
  void meet(int ranks) {
    if (!meeting.meet(ranks)) fail(ncclRemoteError, "{}", kNotMine);
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

// Buffers in the memory that the executor needs.
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
        input_(communicator, largest(order)),
        output_(communicator, largest(order)) {}

  void measure_all() {
    const auto begin = Clock::now();
    if (!comm_.on_gpu()) warm();
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

  static uint64_t largest(const MeterOrder& order) {
    return std::max<uint64_t>(order.points.back().bytes,
                              kWarmingChunk * static_cast<uint64_t>(order.ranks));
  }

  Call call_of(CollectiveKind kind, uint64_t bytes) const {
    Call call;
    call.kind = kind;
    call.input = input_.data();
    call.output = output_.data();
    call.stream = reinterpret_cast<cudaStream_t>(kOwnStream);
    call.count = 1;
    call.reduction.type = ncclFloat32;
    call.reduction.op = ncclSum;
    call.count = std::max<size_t>(1, bytes / array_bytes({kind, order_.ranks, 0}, call));
    return call;
  }

  // See interleaved_timing.h.
  void warm() {
    const Call call =
        call_of(CollectiveKind::kAllReduce, kWarmingChunk * static_cast<uint64_t>(order_.ranks));
    comm_.force_plan(call.kind, &kDirect);
    for (int i = 0; i < kWarmingCalls; i++) run(call);
    comm_.force_plan(call.kind, nullptr);
  }

  void measure(size_t p, size_t c) {
    const MeterPoint& point = order_.points[p];
    Call call = call_of(order_.collectives[c], point.bytes);
    const int roots = Collective{call.kind, order_.ranks, 0}.rooted() ? order_.ranks : 1;
    RotatingRoots rotation(roots);
    const auto run_next = [&] {
      call.root = rotation.next();
      run(call);
    };
    // Warms up. Processes learn of each other's buffers in the first large call, and map them soon
    // afterwards.
    const bool maps = comm_.on_gpu() && order_.processes && c == 0 && point.bytes >= kMappedBytes &&
                      !std::exchange(mapped_, true);
    for (int time = 0; time < (maps ? 2 : 1); time++) {
      if (time > 0) std::this_thread::sleep_for(kMapping);
      for (size_t plan = 0; plan < order_.plans.size(); plan++) {
        if (!takes_part(c, plan)) continue;
        comm_.force_plan(call.kind, order_.plans[plan]);
        for (int i = 0; i < roots; i++) run_next();
        synchronize();
      }
    }
    for (int batch = 0; batch < point.batches; batch++)
      for (const size_t plan : order_of_round(order_.plans.size(), batch)) {
        if (!takes_part(c, plan)) continue;
        comm_.force_plan(call.kind, order_.plans[plan]);
        board_.laps[plan][static_cast<size_t>(batch)][static_cast<size_t>(comm_.rank())] =
            run_batch(
                calls_at(point.bytes), [&] { board_.meet(order_.ranks); }, [&](int) { run_next(); },
                [&] { synchronize(); });
      }
    comm_.force_plan(call.kind, nullptr);
  }

  void evaluate(size_t p, size_t c) {
    auto& medians = board_.medians[p][c];
    double best = 0;
    for (size_t plan = 0; plan < order_.plans.size(); plan++) {
      if (!takes_part(c, plan)) continue;
      std::vector<double> batches;
      for (int b = 0; b < order_.points[p].batches; b++) {
        const auto& ranks = board_.laps[plan][static_cast<size_t>(b)];
        batches.push_back(pace({ranks.data(), static_cast<size_t>(order_.ranks)},
                               calls_at(order_.points[p].bytes)));
      }
      std::sort(batches.begin(), batches.end());
      medians[plan] = batches[batches.size() / 2];
      if (best == 0 || medians[plan] < best) best = medians[plan];
    }
    if (order_.points[p].bytes < kHopelessBytes) return;
    for (size_t plan = 0; plan < order_.plans.size(); plan++)
      if (medians[plan] > hopeless(order_.points[p].bytes) * best) board_.hopeless[c][plan] = true;
  }

  void run(const Call& call) {
    if (comm_.on_gpu()) {
      const Call* calls[] = {&call};
      return comm_.launch(calls);
    }
    run_on_host(comm_, batch_, call);
  }

  void synchronize() {
    if (comm_.gpu() != nullptr) comm_.gpu()->synchronize();
  }

  Communicator& comm_;
  const MeterOrder& order_;
  Board& board_;
  Memory input_, output_;
  bool mapped_ = false;
  host::Batch batch_;
};

RankReport take_part(const MeterOrder& order, Board& board, int rank, const UniqueId& id) {
  try {
    if (order.own_hosts) setenv("NCCL_HOSTID", fmt::format("weft calibrate {}", rank).c_str(), 1);
    CommunicatorOptions options{
        id, {}, rank, order.ranks, fmt::format("rank {} of {}", rank, order.ranks)};
    Communicator communicator(std::move(options));
    if (order.on_gpu && !communicator.on_gpu()) fail(ncclInvalidUsage, "there is no GPU");
    if (order.bound) stay_on_core(rank);  // the communicator's own threads are not bound
    Meter(communicator, order, board).measure_all();
    return {};
  } catch (...) {
    board.meeting.give_up();
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
