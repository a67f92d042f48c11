// See survivor.h.
#include "tests/faults/survivor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "tests/faults/blows.h"
#include "tests/faults/judge.h"
#include "tests/faults/leftovers.h"
#include "tests/support/patterns.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kSlots = 3;                                       // calls at the same time
constexpr size_t kSlotInts = size_t{1} << (kSanitized ? 16 : 20);  // of an input, and of an output
constexpr size_t kBytes = 2 * kSlots * kSlotInts * sizeof(int);
constexpr size_t kMostLeft = size_t{64} << 20;  // GPU memory: code that CUDA loads late

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// From the fault to the end of what it struck. A stop adds its second.
double notice_bound_s(bool stops) {
  return std::chrono::duration<double>(patience(std::chrono::seconds(stops ? 4 : 3))).count();
}

// The first element of a rank's input. Element i is i % 251 more.
int first(uint64_t draw, int rank) {
  return static_cast<int>(mix(draw, static_cast<uint64_t>(rank)) % 1000);
}
int after_first(size_t i) { return static_cast<int>(i % 251); }

}  // namespace

Survivor::Survivor(const SurvivalPlan& plan, int rank, Stage& stage, bool gpu)
    : plan_(plan), rank_(rank), stage_(stage) {
#ifdef WEFT_CHAOS_CUDA
  if (gpu) device_ = make_gpu_device(kBytes, plan.streams);
#endif
  if (!gpu) device_ = make_host_device(kBytes);
  if (device_ == nullptr) throw std::runtime_error("built without CUDA");
}

Survivor::Call::Call(uint64_t from, size_t number, int n) : draw(from), slot(number) {
  Random random(draw);
  kind = random.below(4);
  const uint64_t most[] = {100, 20000, kSlotInts};
  count = 1 + random.below(random.pick(std::vector<uint64_t>(most, most + 3)));
  if (kind == 2) count = std::min(count, kSlotInts / static_cast<size_t>(n));
  root = static_cast<int>(random.below(static_cast<uint64_t>(n)));
}

int* Survivor::input(const Call& call) const {
  return reinterpret_cast<int*>(device_->memory()) + 2 * call.slot * kSlotInts;
}
int* Survivor::output(const Call& call) const { return input(call) + kSlotInts; }

void Survivor::fill(const Call& call, int me, int n) {
  std::vector<int> data(call.count);
  const int from = first(call.draw, me);
  for (size_t i = 0; i < data.size(); i++) data[i] = from + after_first(i);
  device_->write(input(call), data.data(), data.size() * sizeof(int));
  data.assign(call.kind == 2 ? static_cast<size_t>(n) * call.count : call.count, -1);
  device_->write(output(call), data.data(), data.size() * sizeof(int));
}

void Survivor::check(const Call& call, int me, int n) {
  const size_t blocks = call.kind == 2 ? static_cast<size_t>(n) : 1;
  std::vector<int> seen(blocks * call.count);
  device_->read(seen.data(), output(call), seen.size() * sizeof(int));
  int sum = 0;
  for (int r = 0; r < n; r++) sum += first(call.draw, r);
  for (size_t at = 0; at < seen.size(); at++) {
    const size_t i = at % call.count;
    if (i == 0 && call.kind != 0) {
      const int sender = call.kind == 1   ? call.root
                         : call.kind == 2 ? static_cast<int>(at / call.count)
                                          : (me + n - 1) % n;
      sum = first(call.draw, sender);
    }
    const int expected = sum + (call.kind == 0 ? n : 1) * after_first(i);
    if (seen[at] == expected) continue;
    ADD_FAILURE() << "call of kind " << call.kind << ", count " << call.count << ": element " << at
                  << " is " << seen[at] << ", not " << expected;
    return;
  }
}

ncclResult_t Survivor::launch(const Call& call, int me, int n, ncclComm_t comm,
                              cudaStream_t stream) const {
  const int* in = input(call);
  int* out = output(call);
  switch (call.kind) {
    case 0:
      return ncclAllReduce(in, out, call.count, ncclInt32, ncclSum, comm, stream);
    case 1:
      return ncclBroadcast(in, out, call.count, ncclInt32, call.root, comm, stream);
    case 2:
      return ncclAllGather(in, out, call.count, ncclInt32, comm, stream);
    default:
      ncclGroupStart();
      ncclSend(in, call.count, ncclInt32, (me + 1) % n, comm, stream);
      ncclRecv(out, call.count, ncclInt32, (me + n - 1) % n, comm, stream);
      return ncclGroupEnd();
  }
}

void Survivor::record(ncclComm_t comm, uint64_t salt) {
  int n = 0, me = 0;
  ncclCommCount(comm, &n);
  ncclCommUserRank(comm, &me);
  graphs_.assign(SurvivalPlan::kGraphs, {});
  for (size_t g = 0; g < SurvivalPlan::kGraphs; g++) {
    const uint64_t draw = mix(plan_.seed, salt, 1000 + g);
    std::vector<Call>& calls = graphs_[g];
    for (size_t c = 0; c < 1 + draw % kSlots; c++) calls.emplace_back(mix(draw, c), c, n);
    EXPECT_EQ(device_->record(g,
                              [this, &calls, me, n, comm] {
                                ncclResult_t result = ncclSuccess;
                                for (const Call& call : calls)
                                  if (result == ncclSuccess)
                                    result = launch(call, me, n, comm, device_->stream(0));
                                return result;
                              }),
              ncclSuccess)
        << ncclGetLastError(comm);
  }
}

void Survivor::strike() {
  breaker_ = std::thread([this] {
    std::this_thread::sleep_for(std::chrono::microseconds(plan_.delay_us));
    stage_.mark(Stage::kFault);
    if (plan_.stops)
      stop_for_a_second();
    else
      kill_this_process();
  });
}

// Data of a step without an error is right.
Survivor::Outcome Survivor::step(ncclComm_t comm, int number, uint64_t salt, bool with_fault) {
  Random random(mix(plan_.seed, salt, static_cast<uint64_t>(number)));
  int n = 0, me = 0;
  ncclCommCount(comm, &n);
  ncclCommUserRank(comm, &me);
  const bool graph = random.below(3) == 0;
  const size_t which = random.below(graphs_.size()), times = 1 + random.below(3);
  std::vector<Call> calls;
  if (graph)
    calls = graphs_[which];
  else
    for (size_t c = 0; c < times; c++) calls.emplace_back(random.next(), c, n);
  for (const Call& call : calls) fill(call, me, n);
  // In host mode calls return when they are done, so the fault comes with the launch.
  if (with_fault && number == plan_.fault_step && rank_ == plan_.victim) strike();
  ncclResult_t result = ncclSuccess;
  const auto any_stream = [&] {
    return static_cast<int>(random.below(static_cast<uint64_t>(plan_.streams)));
  };
  const int replays_on = any_stream();  // replays of a graph are in one stream's order
  for (size_t i = 0; i < times && result == ncclSuccess; i++)
    result = graph ? device_->replay(which, replays_on)
                   : launch(calls[i], me, n, comm, device_->stream(any_stream()));
  if (result != ncclSuccess || await_end(comm) == Outcome::kFailed) return Outcome::kFailed;
  for (const Call& call : calls) check(call, me, n);
  return Outcome::kDone;
}

Survivor::Outcome Survivor::await_end(ncclComm_t comm) {
  const auto begin = Clock::now();
  for (;;) {
    const bool idle = device_->idle();  // first: a kernel that failed says so before it ends
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    if (state != ncclSuccess && state != ncclInProgress) return Outcome::kFailed;
    if (idle) return Outcome::kDone;
    if (seconds_since(begin) > notice_bound_s(plan_.stops) + 1)
      throw std::runtime_error("a call has neither ended nor failed");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

Survivor::Outcome Survivor::run(ncclComm_t comm, int steps, uint64_t salt, bool with_fault) {
  record(comm, salt);
  for (int i = 0; i < steps; i++)
    if (step(comm, i, salt, with_fault) == Outcome::kFailed) return Outcome::kFailed;
  return Outcome::kDone;
}

ncclComm_t Survivor::join(int number) {
  const ncclUniqueId id = stage_.id(number, rank_);
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, plan_.ranks, id, rank_) != ncclSuccess)
    throw std::runtime_error(ncclGetLastError(nullptr));
  return comm;
}

// The fault may come when the last step of a survivor is done.
void Survivor::expect_notice(ncclComm_t comm) {
  if (!stage_.await(Stage::kFault)) throw std::runtime_error("the victim has not died");
  ncclResult_t state = ncclSuccess;
  while (stage_.since(Stage::kFault) < notice_bound_s(false)) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    if (state != ncclSuccess && state != ncclInProgress && device_->idle()) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const double took = stage_.since(Stage::kFault);
  std::printf("TOOK %.3f\n", took);
  EXPECT_LE(took, notice_bound_s(false)) << "idle: " << device_->idle();
  EXPECT_EQ(state, ncclRemoteError);
  const std::string text = ncclGetLastError(comm);
  EXPECT_TRUE(says(text, ("(rank|peer) " + std::to_string(plan_.victim)).c_str())) << text;
  print_record("comm", state, text);
}

ncclComm_t Survivor::shrink(ncclComm_t comm) {
  ncclComm_t rest = nullptr;
  int victim = plan_.victim;
  const auto begin = Clock::now();
  if (ncclCommShrink(comm, &victim, 1, &rest, nullptr, NCCL_SHRINK_ABORT) != ncclSuccess)
    throw std::runtime_error(std::string("shrink: ") + ncclGetLastError(nullptr));
  EXPECT_LE(seconds_since(begin), notice_bound_s(false)) << "shrink";
  return rest;
}

void Survivor::go_on_without_the_dead(ncclComm_t comm) {
  expect_notice(comm);
  device_->forget_graphs();
  ncclComm_t rest = shrink(comm);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  const bool went_on = run(rest, plan_.steps, 2, false) == Outcome::kDone;
  EXPECT_TRUE(went_on) << ncclGetLastError(rest);
  device_->forget_graphs();
  EXPECT_EQ(went_on ? ncclCommDestroy(rest) : ncclCommAbort(rest), ncclSuccess);
}

void Survivor::play() {
  // What stays until the process ends is made by the first communicator.
  ncclComm_t comm = join(0);
  if (run(comm, 6, 7, false) == Outcome::kFailed) throw std::runtime_error(ncclGetLastError(comm));
  device_->forget_graphs();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  stage_.meet(0, plan_.ranks);
  const Leftovers before;
  const size_t free_before = device_->free_bytes();
  stage_.meet(1, plan_.ranks);
  comm = join(1);
  const Outcome outcome = run(comm, plan_.steps, 1, true);
  if (breaker_.joinable()) breaker_.join();
  if (plan_.stops) {
    EXPECT_EQ(outcome, Outcome::kDone) << "after a stop: " << ncclGetLastError(comm);
    device_->forget_graphs();
    EXPECT_EQ(outcome == Outcome::kDone ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
  } else {
    go_on_without_the_dead(comm);
  }
  stage_.meet(2, alive());
  Leftovers now;
  EXPECT_TRUE(now.settle_to(before)) << now.describe() << ", before " << before.describe();
  EXPECT_GE(device_->free_bytes() + kMostLeft, free_before) << "GPU memory stays taken";
  stage_.meet(3, alive());
}

}  // namespace weft::test
