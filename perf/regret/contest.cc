// See contest.h.
#include "perf/regret/contest.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "algorithms/generators/generators.h"
#include "include/weft.h"
#include "perf/common/device.h"
#include "perf/regret/verdict.h"

namespace weft::perf {
namespace {

constexpr size_t kMostEntrants = 16;
constexpr auto kMapping = std::chrono::milliseconds(30);

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw std::runtime_error(
        fmt::format("{}: {} ({})", what, ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

// The call of one rank. `size` is that of the whole array.
ncclResult_t call(CollectiveKind kind, size_t size, int ranks, const void* in, void* out, int root,
                  ncclComm_t comm, cudaStream_t stream) {
  const size_t all = size / sizeof(float), part = all / static_cast<size_t>(ranks);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return ncclAllReduce(in, out, all, ncclFloat32, ncclSum, comm, stream);
    case CollectiveKind::kAllGather:
      return ncclAllGather(in, out, part, ncclFloat32, comm, stream);
    case CollectiveKind::kReduceScatter:
      return ncclReduceScatter(in, out, part, ncclFloat32, ncclSum, comm, stream);
    case CollectiveKind::kBroadcast:
      return ncclBroadcast(in, out, all, ncclFloat32, root, comm, stream);
    case CollectiveKind::kReduce:
      return ncclReduce(in, out, all, ncclFloat32, ncclSum, root, comm, stream);
    case CollectiveKind::kAllToAll:
      return ncclAlltoAll(in, out, part, ncclFloat32, comm, stream);
    case CollectiveKind::kGather:
      return ncclGather(in, out, part, ncclFloat32, root, comm, stream);
    default:
      return ncclScatter(in, out, part, ncclFloat32, root, comm, stream);
  }
}

}  // namespace

Board::Board(const RegretOptions& options)
    : ranks_(options.ranks),
      each_(static_cast<size_t>(options.repetitions) * kMostEntrants),
      bytes_(sizeof(Shared) + static_cast<size_t>(ranks_) * each_ * sizeof(Lap)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory that ranks can share");
  shared_ = std::construct_at(static_cast<Shared*>(memory));
  laps_ = reinterpret_cast<Lap*>(shared_ + 1);
}

Board::~Board() { munmap(shared_, bytes_); }

void Board::meet() {
  if (!shared_->meeting.meet(ranks_)) throw std::runtime_error("the other ranks do not come");
}

Contest::Contest(const RegretOptions& options, Board& board, int rank)
    : options_(options), board_(board), rank_(rank) {
  const uint64_t bytes = std::max<uint64_t>(options.most, warming_bytes());
  device::select(rank);
  stream_ = device::stream(rank, false);
  for (void** buffer : {&input_, &output_})
    *buffer = options.plain ? device::allocate_plain(bytes) : device::allocate(bytes);
  device::fill(input_, 0, bytes);
  device::fill(output_, 0, bytes);
}

int Contest::run() {
  Verdict verdict;
  if (rank_ == 0) Verdict::print_head(options_.ranks, options_.processes);
  for (const std::string& name : options_.collectives) {
    const CollectiveKind kind = parse_collective(name).value();
    Cell cell{name, kind, entrants_for(kind, options_.ranks), {}, {}};
    if (cell.entrants.size() > kMostEntrants) throw std::runtime_error("there are too many plans");
    // In host mode one communicator serves all plans: with one each, messages would lie in colder
    // memory than in a job. On GPUs a refused plan must not harm others, so each has its own. There
    // plans take turns, so that a disturbance of the machine does not affect one plan alone.
    const size_t together = weftHostMode() == 1 ? cell.entrants.size() : 1;
    for (repetition_ = 0; repetition_ < repetitions(); repetition_++) {
      cell.out.assign(cell.entrants.size(), false);
      for (size_t first = 0; first < cell.entrants.size(); first += together)
        compete(cell, first, together);
    }
    if (rank_ != 0) continue;
    for (const uint64_t size : sizes())
      verdict.add_row(name, size, cell.entrants, cell.predicted_us[size]);
  }
  return rank_ == 0 ? verdict.finish(options_.limit) : 0;
}

std::vector<uint64_t> Contest::sizes() const {
  std::vector<uint64_t> list;
  for (uint64_t size = options_.least; size <= options_.most;
       size *= static_cast<uint64_t>(options_.factor))
    list.push_back(size);
  return list;
}

// The number of communicators made for every plan, and of rounds in each of them. Slow calls need
// fewer repetitions, because their times vary less.
int Contest::repetitions() const {
  return weftHostMode() == 1 ? 1 : std::min(options_.repetitions, 5);
}

int Contest::repetitions_of(uint64_t size) const {
  const int some = size <= (16u << 20)   ? options_.repetitions
                   : size <= (64u << 20) ? options_.repetitions / 2
                                         : options_.repetitions / 3;
  return std::min(options_.repetitions, std::max(some, 5)) / repetitions();
}

void Contest::compete(Cell& cell, size_t first, size_t count) {
  connect();
  if (rank_ == 0 && first == 0)
    for (const uint64_t size : sizes()) ask(cell, size);
  if (weftHostMode() == 1 && !options_.unbound) stay_on_core(rank_);
  for (const uint64_t size : sizes()) measure(cell, first, count, size);
  check(ncclCommDestroy(comm_), "ncclCommDestroy");
  board_.meet();
}

void Contest::connect() {
  if (rank_ == 0) check(ncclGetUniqueId(&board_.id()), "ncclGetUniqueId");
  board_.meet();
  check(ncclCommInitRank(&comm_, options_.ranks, board_.id(), rank_), "ncclCommInitRank");
  if (weftHostMode() == 1) warm();
}

uint64_t Contest::warming_bytes() const {
  return kWarmingChunk * static_cast<uint64_t>(options_.ranks);
}

// See interleaved_timing.h.
void Contest::warm() {
  check(weftForcePlan(comm_, "all_reduce", kDirect.name.data()), "weftForcePlan");
  for (int i = 0; i < kWarmingCalls; i++)
    check(one(CollectiveKind::kAllReduce, warming_bytes()), "call");
  check(weftForcePlan(comm_, "all_reduce", nullptr), "weftForcePlan");
}

bool Contest::force(const Cell& cell, size_t entrant) {
  const std::string& plan = cell.entrants[entrant].plan;
  return weftForcePlan(comm_, cell.name.c_str(), plan.empty() ? nullptr : plan.c_str()) ==
         ncclSuccess;
}

ncclResult_t Contest::one(CollectiveKind kind, uint64_t size, int root) {
  return call(kind, size, options_.ranks, input_, output_, root, comm_, stream_);
}

void Contest::ask(Cell& cell, uint64_t size) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  check(ncclGroupStart(), "ncclGroupStart");
  check(one(cell.kind, size), "call");
  check(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
  if (info.estimatedTime != NCCL_UNDEF_FLOAT)
    cell.predicted_us[size] = static_cast<double>(info.estimatedTime);
  const char* plan = "";
  check(weftPlanOf(comm_, cell.name.c_str(), size, &plan), "weftPlanOf");
  cell.entrants[0].chosen[size] = plan;
}

// Calls from every root, which also warms the plan up. Peers that learn of plain buffers in the
// first calls map them soon afterwards. Rank 0's result decides.
void Contest::try_out(Cell& cell, size_t entrant, uint64_t size) {
  board_.meet();
  bool refused = cell.out[entrant] || !force(cell, entrant);
  for (int time = 0; time < (options_.plain ? 2 : 1); time++) {
    if (time > 0) std::this_thread::sleep_for(kMapping);
    for (int root = 0; root < options_.ranks && !refused; root++)
      refused = one(cell.kind, size, root) != ncclSuccess;
    device::synchronize(stream_);
  }
  if (rank_ == 0) board_.refused() = refused;
  board_.meet();
  cell.out[entrant] = board_.refused();
}

// See interleaved_timing.h.
void Contest::measure(Cell& cell, size_t first, size_t count, uint64_t size) {
  for (size_t e = first; e < first + count; e++) try_out(cell, e, size);
  const int calls = calls_at(size), rounds = repetitions_of(size);
  RotatingRoots roots(options_.ranks, repetition_);
  std::vector<size_t> order;  // order of laps
  for (int round = 0; round < rounds; round++)
    for (const size_t e : order_of_round(count, round)) {
      if (cell.out[first + e]) continue;
      force(cell, first + e);
      board_.lap(rank_, order.size()) = run_batch(
          calls, [&] { board_.meet(); },
          [&](int) { check(one(cell.kind, size, roots.next()), "call"); },
          [&] { device::synchronize(stream_); });
      order.push_back(first + e);
    }
  board_.meet();
  if (rank_ == 0) {
    std::vector<Lap> ranks(static_cast<size_t>(options_.ranks));
    for (size_t lap = 0; lap < order.size(); lap++) {
      for (int r = 0; r < options_.ranks; r++) ranks[static_cast<size_t>(r)] = board_.lap(r, lap);
      cell.entrants[order[lap]].times[size].push_back(pace(ranks, calls));
    }
  }
  board_.meet();  // laps are reused
}

}  // namespace weft::perf
