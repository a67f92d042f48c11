// gemm_perf: collectives beside GEMMs, ranks as threads that share the GPUs.
//   hidden    GEMM over rows that a partitioned all_gather brings: share of the shorter that hides
//   priority  all_reduce of 64 KiB beside one of 256 MiB: alone, in the same and in a higher class
//   few       reduce_scatter with few thread blocks beside a GEMM of 8192^3: what the GEMM loses
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "perf/common/paired.h"
#include "perf/overlap/gemm.h"
#include "src/tools/command_line.h"
#include "weft.h"

namespace weft::perf::overlap {
namespace {

constexpr const char* kSummary =
    "Collectives beside GEMMs (bfloat16, cuBLAS) on GPUs that the ranks, which are threads, share. "
    "Exit code 1: data was wrong.";

struct Settings {
  int ranks = 4, blocks = 2, parts = 16, runs = 7;
  bool leave = false, copies = false;
  std::string only;
};

// Runs body(rank) on a thread per rank. An error ends the program: the others would wait.
template <typename Body>
void on_ranks(int ranks, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; rank++)
    threads.emplace_back([&, rank] {
      try {
        device::select(rank);
        body(rank);
      } catch (const std::exception& error) {
        fmt::print(stderr, "gemm_perf: rank {}: {}\n", rank, error.what());
        std::_Exit(kExitLibrary);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

ncclComm_t join(const ncclUniqueId& id, int ranks, int rank, int blocks, bool copies = false) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (blocks > 0) config.maxCTAs = blocks;
  if (copies) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  ncclComm_t comm = nullptr;
  check(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), "ncclCommInitRankConfig");
  return comm;
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

// The slowest rank's time of each run, in which all ranks do `work` together.
class Turns {
 public:
  Turns(int ranks, int runs)
      : meeting_(ranks), times_(static_cast<size_t>(runs), std::vector<double>(size_t(ranks))) {}
  template <typename Work>
  void take(int rank, Work work) {
    for (int run = -1; run < static_cast<int>(times_.size()); run++) {
      meeting_.arrive_and_wait();
      const double us = work();
      if (run >= 0) times_[static_cast<size_t>(run)][static_cast<size_t>(rank)] = us;
    }
    meeting_.arrive_and_wait();
  }
  double us() const {
    std::vector<double> slowest;
    for (const auto& run : times_) slowest.push_back(*std::max_element(run.begin(), run.end()));
    return median(slowest);
  }

 private:
  std::barrier<> meeting_;
  std::vector<std::vector<double>> times_;
};

// A rank of `hidden`: its rows, the rows of all, weights, products, and words of parts.
class Gathered {
 public:
  static constexpr int kRows = 2048, kInner = 8192, kColumns = 8192;  // rows of a rank
  Gathered(const Settings& settings, const ncclUniqueId& id, int rank)
      : ranks_(settings.ranks),
        parts_(settings.parts),
        comm_(join(id, settings.ranks, rank, settings.blocks, settings.copies)),
        own_(filled(size_t{kRows} * kInner, value(rank))),
        weights_(filled(size_t{kInner} * kColumns, 1.0F / 1024)),
        all_(filled(static_cast<size_t>(ranks_) * kRows * kInner, 0)),
        products_(filled(static_cast<size_t>(ranks_) * kRows * kColumns, 0)),
        done_(static_cast<unsigned*>(device::allocate(sizeof(unsigned) * 1024))) {}
  ~Gathered() {
    ncclCommDestroy(comm_);
    for (void* memory :
         {static_cast<void*>(own_), static_cast<void*>(weights_), static_cast<void*>(all_),
          static_cast<void*>(products_), static_cast<void*>(done_)})
      device::release(memory);
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  // Either, or both. Microseconds from the begin to the end of both. Unless `waits`, GEMMs take
  // what is there.
  double run(bool gathers, bool multiplies, bool waits = true) {
    check_cuda(cudaMemsetAsync(done_, gathers ? 0 : 1, 1024 * sizeof(unsigned), moves_.get()),
               "words");
    if (gathers) check_cuda(cudaMemsetAsync(all_, 0, bytes_of_all(), moves_.get()), "rows");
    moves_.finish();
    span_.begin(computes_);
    moves_.wait_for(computes_);
    gathering_.begin(moves_);
    if (gathers)
      check(weftPartitioned(comm_, "all_gather", own_, all_, size_t{kRows} * kInner, ncclBfloat16,
                            ncclSum, 0, parts_, nullptr, done_, moves_.get()),
            "weftPartitioned");
    gathering_.end(moves_);
    for (int part = 0; multiplies && part < parts_; part++) multiply(part, waits && gathers);
    computes_.wait_for(moves_);
    span_.end(computes_);
    computes_.finish();
    return span_.us();
  }

  void leave(int sms) { gemm_.leave(sms); }
  // The all_gather of the last run: longer where GEMMs take its share of the memory.
  double gather_us() const { return gathering_.us(); }

  // Every part of every rank's rows, one element each.
  bool right() const {
    for (int rank = 0; rank < ranks_; rank++)
      for (int part = 0; part < parts_; part++) {
        const size_t row = static_cast<size_t>(rank) * kRows + size_t(part) * (kRows / parts_);
        Bits found = 0;
        device::copy_out(&found, products_ + row * kColumns + 17, sizeof found);
        if (found != bfloat16(value(rank) * kInner / 1024)) return false;
      }
    return true;
  }

 private:
  static float value(int rank) { return static_cast<float>(rank + 1) / 8; }
  size_t bytes_of_all() const {
    return static_cast<size_t>(ranks_) * kRows * kInner * sizeof(Bits);
  }
  void multiply(int part, bool waits) {
    size_t begin = 0, length = 0;
    check(weftPart(size_t{kRows} * kInner, ncclBfloat16, parts_, part, &begin, &length),
          "weftPart");
    if (begin % kInner != 0 || length % kInner != 0)
      throw UsageError("parts are not whole rows: take a power of two");
    if (waits) computes_.wait_for(done_ + part);
    gemm_.run(all_ + begin, weights_, products_ + begin / kInner * kColumns,
              static_cast<int>(length / kInner), ranks_, kRows);
  }

  int ranks_, parts_;
  ncclComm_t comm_;
  Bits *own_, *weights_, *all_, *products_;
  unsigned* done_;
  Stream moves_{-5}, computes_;
  Gemm gemm_{computes_, kColumns, kInner};
  Span span_, gathering_;
};

bool hidden(const Settings& settings) {
  const ncclUniqueId id = new_id();
  Turns gathers(settings.ranks, settings.runs), multiplies(settings.ranks, settings.runs),
      fewer(settings.ranks, settings.runs), both(settings.ranks, settings.runs),
      beside_each_other(settings.ranks, settings.runs);
  std::atomic<bool> right{true};
  std::vector<double> beside(static_cast<size_t>(settings.ranks));
  on_ranks(settings.ranks, [&](int rank) {
    Gathered data(settings, id, rank);
    gathers.take(rank, [&] { return data.run(true, false); });
    multiplies.take(rank, [&] { return data.run(false, true); });
    if (settings.leave) {
      data.leave(settings.blocks * settings.ranks);
      fewer.take(rank, [&] { return data.run(false, true); });
    }
    both.take(rank, [&] { return data.run(true, true); });
    beside[static_cast<size_t>(rank)] = data.gather_us();
    if (!data.right()) right = false;
    beside_each_other.take(rank, [&] { return data.run(true, true, false); });
  });
  // The faster GEMM counts: leaving SMs may help it even alone, which is no overlap.
  const double gemm = settings.leave ? std::min(multiplies.us(), fewer.us()) : multiplies.us();
  const double share = (gathers.us() + gemm - both.us()) / std::min(gathers.us(), gemm);
  fmt::print("hidden: {} ranks, {}, {} parts, all_gather of {} MiB, GEMM of {} rows a rank\n",
             settings.ranks,
             settings.copies ? "copy engines" : fmt::format("{} blocks each", settings.blocks),
             settings.parts,
             size_t(settings.ranks) * Gathered::kRows * Gathered::kInner * sizeof(Bits) >> 20,
             settings.ranks * Gathered::kRows);
  fmt::print(
      "  all_gather alone {:.0f} us ({:.0f} us beside the GEMM), GEMM alone {:.0f} us, both {:.0f} "
      "us: {:.0f}% of the shorter are hidden{}\n",
      gathers.us(), *std::max_element(beside.begin(), beside.end()), gemm, both.us(), 100 * share,
      right ? "" : "  WRONG DATA");
  fmt::print(
      "  both {:.0f} us where GEMMs wait for no part: what the memory and SMs they share cost\n",
      beside_each_other.us());
  if (settings.leave)
    fmt::print("  GEMM alone {:.0f} us with all SMs, {:.0f} us when it leaves {}\n",
               multiplies.us(), fewer.us(), settings.blocks * settings.ranks);
  return right;
}

bool priority(const Settings& settings) {
  constexpr size_t kSmall = 16 << 10, kLarge = size_t{64} << 20;  // floats
  constexpr int kCalls = 60, kLargeCalls = 30;
  const ncclUniqueId small_id = new_id(), large_id = new_id();
  std::vector<std::vector<double>> times(3);  // alone, same class, higher class
  std::barrier meeting(settings.ranks);
  on_ranks(settings.ranks, [&](int rank) {
    ncclComm_t small = join(small_id, settings.ranks, rank, 0),
               large = join(large_id, settings.ranks, rank, 0);
    auto* few = static_cast<float*>(device::allocate(kSmall * 4));
    auto* many = static_cast<float*>(device::allocate(kLarge * 4));
    device::fill(few, 0, kSmall * 4);
    device::fill(many, 0, kLarge * 4);
    const Stream urgent, patient;
    Span span;
    for (size_t kind = 0; kind < times.size(); kind++) {
      if (kind == 2) {
        check(weftCommSetPriority(small, 1), "weftCommSetPriority");
        check(weftCommSetPriority(large, -1), "weftCommSetPriority");
      }
      meeting.arrive_and_wait();
      for (int i = 0; kind > 0 && i < kLargeCalls; i++)
        check(ncclAllReduce(many, many, kLarge, ncclFloat32, ncclSum, large, patient.get()),
              "large");
      for (int i = 0; i < kCalls; i++) {
        meeting.arrive_and_wait();
        span.begin(urgent);
        check(ncclAllReduce(few, few, kSmall, ncclFloat32, ncclSum, small, urgent.get()), "small");
        span.end(urgent);
        urgent.finish();
        // Only while large calls still run.
        const bool counts = kind == 0 || cudaStreamQuery(patient.get()) == cudaErrorNotReady;
        if (rank == 0 && i >= 10 && counts) times[kind].push_back(span.us());
      }
      patient.finish();
    }
    meeting.arrive_and_wait();
    ncclCommDestroy(small);
    ncclCommDestroy(large);
    device::release(few);
    device::release(many);
  });
  const double alone = median(times[0]);
  fmt::print(
      "priority: {} ranks, all_reduce of 64 KiB: alone {:.1f} us; beside one of 256 MiB {:.1f} us "
      "({:.2f} times, {} calls) in the same class, {:.1f} us ({:.2f} times, {} calls) in a higher "
      "one\n",
      settings.ranks, alone, median(times[1]), median(times[1]) / alone, times[1].size(),
      median(times[2]), median(times[2]) / alone, times[2].size());
  return true;
}

bool few(const Settings& settings) {
  constexpr int kSize = 8192, kGemms = 8, kSums = 60;
  constexpr size_t kCount = size_t{8} << 20;  // floats that a rank gets
  const int blocks = std::max(1, 4 / settings.ranks);
  const ncclUniqueId id = new_id();
  double us[3] = {};  // alone, beside, beside with SMs left
  std::barrier meeting(settings.ranks);
  double sum_us = 0;
  on_ranks(settings.ranks, [&](int rank) {
    ncclComm_t comm = join(id, settings.ranks, rank, blocks);
    const size_t all = kCount * static_cast<size_t>(settings.ranks);
    auto* in = static_cast<float*>(device::allocate(all * 4));
    auto* out = static_cast<float*>(device::allocate(kCount * 4));
    device::fill(in, 0, all * 4);
    const Stream moves(-5), computes;
    Gemm gemm(computes, kSize, kSize);
    Bits* matrix[3] = {};
    if (rank == 0)
      for (Bits*& each : matrix) each = filled(size_t{kSize} * kSize, 1.0F / 64);
    Span span, sums;
    for (int kind = 0; kind < 3; kind++) {
      if (kind == 2) gemm.leave(blocks * settings.ranks);
      std::vector<double> found;
      for (int run = 0; run <= settings.runs; run++) {
        meeting.arrive_and_wait();
        sums.begin(moves);
        for (int i = 0; kind > 0 && i < kSums; i++)
          check(ncclReduceScatter(in, out, kCount, ncclFloat32, ncclSum, comm, moves.get()), "sum");
        sums.end(moves);
        if (rank == 0) {
          span.begin(computes);
          for (int i = 0; i < kGemms; i++)
            gemm.run(matrix[0], matrix[1], matrix[2], kSize, 1, kSize);
          span.end(computes);
          computes.finish();
          const bool beside = kind == 0 || cudaStreamQuery(moves.get()) == cudaErrorNotReady;
          if (!beside) fmt::print(stderr, "gemm_perf: the sums ended before the GEMMs\n");
          if (run > 0) found.push_back(span.us() / kGemms);
        }
        moves.finish();
        if (rank == 0 && kind == 1) sum_us = sums.us() / kSums;
      }
      if (rank == 0) us[kind] = median(found);
    }
    meeting.arrive_and_wait();
    ncclCommDestroy(comm);
    for (void* memory : {static_cast<void*>(in), static_cast<void*>(out)}) device::release(memory);
    for (Bits* each : matrix)
      if (each != nullptr) device::release(each);
  });
  fmt::print(
      "few: GEMM of 8192^3 alone {:.0f} us ({:.0f} TFLOPS); beside reduce_scatters ({} ranks of {} "
      "blocks, "
      "{:.0f} us each) {:.0f} us ({:+.1f}%), {:.0f} us ({:+.1f}%) with cublasSetSmCountTarget\n",
      us[0], 2.0 * kSize * kSize * kSize / us[0] / 1e6, settings.ranks, blocks, sum_us, us[1],
      100 * (us[1] / us[0] - 1), us[2], 100 * (us[2] / us[0] - 1));
  return true;
}

int run(const Settings& settings) {
  if (const char* why = device::unavailable(); why != nullptr || weftHostMode() != 0) {
    fmt::print(stderr, "gemm_perf: {}\n", why != nullptr ? why : "host mode has no GEMMs");
    return kExitUsage;
  }
  bool right = true;
  if (settings.only.empty() || settings.only == "hidden") right = hidden(settings) && right;
  if (settings.only.empty() || settings.only == "priority") right = priority(settings) && right;
  if (settings.only.empty() || settings.only == "few") right = few(settings) && right;
  return right ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace weft::perf::overlap

int main(int argc, char** argv) {
  using namespace weft::perf;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // a queue for every stream
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
  overlap::Settings settings;
  weft::CommandLine program("gemm_perf", overlap::kSummary);
  program.add_option("-r,--ranks", settings.ranks, "ranks").between(2, 16).with_default();
  program.add_option("-b,--blocks", settings.blocks, "thread blocks of a rank in 'hidden'")
      .between(1, 32)
      .with_default();
  program.add_flag("-c,--copies", settings.copies,
                   "in 'hidden' copy engines move the data (NCCL_CTA_POLICY_ZERO)");
  program.add_flag(
      "-l,--leave", settings.leave,
      "in 'hidden' the GEMM leaves the SMs of the all_gather (cublasSetSmCountTarget)");
  program.add_option("-p,--parts", settings.parts, "parts of the all_gather")
      .between(1, 64)
      .with_default();
  program.add_option("-n,--runs", settings.runs, "measured runs, after one to warm up")
      .between(1, 1000)
      .with_default();
  program.add_option("--only", settings.only, "one measurement")
      .one_of({"hidden", "priority", "few"});
  program.calls([&] {
    if (const int code = overlap::run(settings); code != kExitOk) throw weft::ExitCode{code};
  });
  return program.run(argc, argv);
}
