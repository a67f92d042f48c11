// See chaos_rank.h.
#include "tests/faults/chaos_rank.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/faults/blows.h"
#include "tests/faults/judge.h"
#include "tests/faults/leftovers.h"
#include "tests/faults/wire_tap.h"
#include "tests/support/patterns.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

// From the fault to the end of a call. What is stopped, slow or late adds its second. A lost socket
// may look like a host that went dark. Verbs try again before they give up (NCCL_IB_TIMEOUT,
// WEFT_IB_RECOVERY), and their inits have a longer time limit.
double bound_s(const ChaosPlan& plan) {
  int normal = plan.harmless() ? 4 : 3;
  if (plan.fault == ChaosPlan::kClose || plan.fault >= ChaosPlan::kWireFlaps ||
      (plan.medium != ChaosPlan::kSockets && plan.phase == ChaosPlan::kInit))
    normal = 12;
  return std::chrono::duration<double>(patience(std::chrono::seconds(normal))).count();
}

void limit(decltype(RLIMIT_AS) what, rlim_t most) {
  rlimit now{};
  getrlimit(what, &now);
  now.rlim_cur = most;
  setrlimit(what, &now);
}

int value(int rank, uint64_t draw) {
  return static_cast<int>(mix(draw, static_cast<uint64_t>(rank)) % 1000);
}

}  // namespace

bool ChaosRank::done(const std::string& what, const std::string& name,
                     const std::function<ncclResult_t()>& call) {
  const auto begin = Clock::now();
  const ncclResult_t result = call();
  double took = std::chrono::duration<double>(Clock::now() - begin).count();
  if (stage_.has(Stage::kFault)) {
    took = std::min(took, stage_.since(Stage::kFault));
    EXPECT_LE(took, bound_s(plan_))
        << what << " returned " << result << ": " << ncclGetLastError(nullptr);
    std::printf("TOOK %.3f\n", took);
  }
  if (result == ncclSuccess) return true;
  const std::string text = ncclGetLastError(nullptr);
  std::printf("%s: %d %s\n", what.c_str(), result, text.c_str());
  EXPECT_FALSE(plan_.harmless()) << what << ": " << text;
  if (reads_the_record(name)) print_record(name, result, text);
  if (says(text, "changed on the way|damaged or forged")) stage_.mark(Stage::kFirst);
  return false;
}

// Two ranks that lose their connection have only their own word for who failed.
bool ChaosRank::reads_the_record(const std::string& name) const {
  if (name.empty() || (rank_ == plan_.victim && plan_.exhausts())) return false;
  const int members = name == "comm" ? plan_.ranks : (plan_.ranks + 1 - rank_ % 2) / 2;
  return plan_.fault != ChaosPlan::kClose || members > 2;
}

// A rank that gets damaged data of a call fails, and says why. (A control message may have come
// when nobody needed it any more.)
void ChaosRank::expect_damage_was_found() {
  if (plan_.fault != ChaosPlan::kCorrupt || plan_.any_piece || !stage_.has(Stage::kFault)) return;
  EXPECT_TRUE(stage_.await(Stage::kFirst, bound_s(plan_))) << "nobody found the changed bit";
}

// The fault comes a little after the begin of its phase, on another thread.
void ChaosRank::enter(ChaosPlan::Phase phase) {
  if (rank_ != plan_.victim || phase != plan_.phase) return;
  if (plan_.fault == ChaosPlan::kLate) {
    stage_.mark(Stage::kFault);
    pause_ms(static_cast<int>(plan_.seed % 1000));
    return;
  }
  breaker_ = std::thread([this] {
    std::this_thread::sleep_for(std::chrono::microseconds(plan_.delay_us));
    break_something();
  });
}

void ChaosRank::break_something() {
  if (plan_.fault == ChaosPlan::kCorrupt) {
    static Stage* stage = nullptr;
    stage = &stage_;
    return WireTap::damage_next(plan_.any_piece ? 1 : WireTap::kLeastData, mix(plan_.seed, 3),
                                [] { stage->mark(Stage::kFault); });
  }
  stage_.mark(Stage::kFault);
  switch (plan_.fault) {
    case ChaosPlan::kForkAndKill:
      if (fork() == 0) {
        alarm(6);
        for (;;) pause();
      }
      [[fallthrough]];
    case ChaosPlan::kKill:
      kill_this_process();
    case ChaosPlan::kStop:
      return stop_for_a_second();
    case ChaosPlan::kClose:
      return lose_a_socket(plan_.seed);
    case ChaosPlan::kCutOff:
      return lose_all_tcp();
    case ChaosPlan::kSlowWire:
      return WireTap::delay_for_a_second(plan_.seed);
    case ChaosPlan::kFewDescriptors:
      return limit(RLIMIT_NOFILE, 3);
    case ChaosPlan::kLittleMemory:
      return limit(RLIMIT_AS, address_space());
    case ChaosPlan::kNoThreads:
      return forbid_threads();
    default:
      if (wire_ != nullptr) wire_->strike(plan_.fault);  // else ChaosHosts does it
  }
}

// The same draw on all ranks is the same call. Data of a call that succeeded is right.
bool ChaosRank::run_call(ncclComm_t comm, const std::string& name, uint64_t draw) {
  Random random(draw);
  int n = 0, me = 0;
  ncclCommCount(comm, &n);
  ncclCommUserRank(comm, &me);
  const uint64_t kind = random.below(4);
  const size_t count = random.below(2) == 0 ? 1 + random.below(100) : 1 + random.below(100000);
  const int root = static_cast<int>(random.below(static_cast<uint64_t>(n)));
  std::vector<int> in(count, value(me, draw));
  std::vector<int> out(count * static_cast<size_t>(n), -1);
  const bool succeeded = done("call " + std::to_string(kind), name, [&] {
    switch (kind) {
      case 0:
        return ncclAllReduce(in.data(), out.data(), count, ncclInt32, ncclSum, comm, nullptr);
      case 1:
        return ncclBroadcast(in.data(), out.data(), count, ncclInt32, root, comm, nullptr);
      case 2:
        return ncclAllGather(in.data(), out.data(), count, ncclInt32, comm, nullptr);
      default:
        ncclGroupStart();
        ncclSend(in.data(), count, ncclInt32, (me + 1) % n, comm, nullptr);
        ncclRecv(out.data(), count, ncclInt32, (me + n - 1) % n, comm, nullptr);
        return ncclGroupEnd();
    }
  });
  if (!succeeded) return false;
  int expected = 0;
  for (int r = 0; r < n; r++) expected += value(r, draw);
  if (kind == 1) expected = value(root, draw);
  if (kind == 2) expected = value(0, draw);
  if (kind == 3) expected = value((me + n - 1) % n, draw);
  const auto end = out.begin() + static_cast<ptrdiff_t>(count);
  EXPECT_EQ(std::count(out.begin(), end, expected), end - out.begin()) << "call " << kind;
  if (kind == 2) {
    EXPECT_EQ(out.back(), value(n - 1, draw));
  }
  return true;
}

bool ChaosRank::run_calls(ncclComm_t comm, const std::string& name, int count, uint64_t salt) {
  for (int i = 0; i < count; i++)
    if (!run_call(comm, name, mix(plan_.seed, salt, static_cast<uint64_t>(i)))) return false;
  return true;
}

// Calls, a split, and calls of its part. Ends at the first failure.
void ChaosRank::use(ncclComm_t comm) {
  enter(ChaosPlan::kCalls);
  if (!run_calls(comm, "comm", plan_.calls, 1)) return;
  enter(ChaosPlan::kSplit);
  ncclComm_t part = nullptr;
  const int color = rank_ % 2;
  const auto split = [&] { return ncclCommSplit(comm, color, rank_, &part, nullptr); };
  const std::string name = "part" + std::to_string(color);
  // A death is the parent's failure. Otherwise there is no communicator yet that has a record.
  if (!done("split", plan_.dies() ? "comm" : "", split)) return;
  enter(ChaosPlan::kPart);
  const bool fine = run_calls(part, name, plan_.calls, 2 + static_cast<uint64_t>(color));
  done("end of the part", "", [&] { return fine ? ncclCommDestroy(part) : ncclCommAbort(part); });
}

ncclComm_t ChaosRank::join(int number) {
  const ncclUniqueId id = stage_.id(number, rank_);
  stage_.meet(number, plan_.ranks);
  if (number > 0) enter(ChaosPlan::kInit);
  ncclComm_t comm = nullptr;
  done("init", "", [&] { return ncclCommInitRank(&comm, plan_.ranks, id, rank_); });
  return comm;
}

void ChaosRank::play() {
  if (plan_.medium == ChaosPlan::kVerbs && rank_ == plan_.victim) wire_ = make_chaos_wire();
  // Threads and sockets of the process stay for the next communicator, so the first one makes them.
  ncclComm_t comm = join(0);
  if (comm == nullptr) throw std::runtime_error("no communicator before the fault");
  run_calls(comm, "first", 4, 7);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  stage_.meet(Stage::kMostIds, plan_.ranks);
  const Leftovers before;
  comm = join(1);
  if (comm != nullptr) {
    use(comm);
    enter(ChaosPlan::kEnd);
    const bool finalizes = mix(plan_.seed, 9) % 2 == 0;
    done("end", "", [&] {
      return finalizes && !stage_.has(Stage::kFault) ? ncclCommDestroy(comm) : ncclCommAbort(comm);
    });
  }
  if (breaker_.joinable()) {
    breaker_.join();  // the fault may come later than the last call
    limit(RLIMIT_AS, RLIM_INFINITY);
    limit(RLIMIT_NOFILE, 1024);
    allow_threads();
  }
  expect_damage_was_found();
  wire_.reset();
  Leftovers now;
  EXPECT_TRUE(now.settle_to(before, plan_.medium == ChaosPlan::kNetwork ? 10 : 5))
      << now.describe() << ", before " << before.describe();
}

}  // namespace weft::test
