// See worker.h.
#include "perf/processes/worker.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace weft::perf {
namespace {

void ok(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
void ok(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string(what) + ": " + ncclGetLastError(nullptr));
}

class Worker {
 public:
  Worker(const Settings& settings, Mode mode, int rank, Board& board)
      : settings_(settings), rank_(rank), board_(board) {
    ok(cudaSetDevice(0), "cudaSetDevice");
    if (rank == 0) ok(ncclGetUniqueId(&board.id), "ncclGetUniqueId");
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    const auto n = static_cast<size_t>(settings.ranks);
    bytes_ = (settings.max_bytes + n * sizeof(float) + 4095) / 4096 * 4096;
    const bool registered = mode == Mode::kRegistered;
    const bool window = registered && settings.registration == 2;
    for (float*& buffer : {std::ref(in_), std::ref(out_)}) {
      void* memory = nullptr;
      if (window) {
        ok(ncclMemAlloc(&memory, bytes_), "ncclMemAlloc");
      } else {
        ok(cudaMalloc(&memory, bytes_), "cudaMalloc");
      }
      buffer = static_cast<float*>(memory);
    }
    std::vector<float> host(bytes_ / sizeof(float));
    for (size_t i = 0; i < host.size(); ++i) host[i] = value(rank, i);
    ok(cudaMemcpy(in_, host.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
    ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    board.meet(settings.ranks);
    ok(ncclCommInitRank(&comm_, settings.ranks, board.id, rank), "ncclCommInitRank");
    for (float* buffer : {in_, out_}) {
      if (window) {
        ncclWindow_t handle = nullptr;
        ok(ncclCommWindowRegister(comm_, buffer, bytes_, &handle, NCCL_WIN_COLL_SYMMETRIC),
           "ncclCommWindowRegister");
        windows_.push_back(handle);
      } else if (registered) {
        void* handle = nullptr;
        ok(ncclCommRegister(comm_, buffer, bytes_, &handle), "ncclCommRegister");
        handles_.push_back(handle);
      }
    }
  }

  ~Worker() {
    if (std::uncaught_exceptions() > 0) return;  // the process ends at once
    board_.meet(settings_.ranks);
    for (void* handle : handles_) ncclCommDeregister(comm_, handle);
    for (ncclWindow_t window : windows_) ncclCommWindowDeregister(comm_, window);
    ncclCommDestroy(comm_);
    if (windows_.empty()) {
      cudaFree(in_);
      cudaFree(out_);
    } else {
      ncclMemFree(in_);
      ncclMemFree(out_);
    }
    cudaStreamDestroy(stream_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Board::Row run(const Row& row) {
    std::vector<double> times;
    // Plain buffers are shared in the background after their first use.
    for (const auto wait : {std::chrono::milliseconds(100), std::chrono::milliseconds(0)}) {
      for (int i = 0; i < settings_.warmup; ++i) call(row);
      synchronize();
      std::this_thread::sleep_for(wait);
    }
    launch_us_ = 1e9;
    if (settings_.graph_calls > 0) capture(row);
    for (int i = 0; i < settings_.repetitions; ++i) times.push_back(time(row));
    if (instance_ != nullptr) ok(cudaGraphExecDestroy(instance_), "cudaGraphExecDestroy");
    instance_ = nullptr;
    std::sort(times.begin(), times.end());
    const double mine = times[times.size() / 2];
    return combine(mine, count_wrong(row));
  }

  // The host time of a call with memory that is new. Median, in us.
  double fresh_call_us() {
    constexpr size_t kBytes = size_t{4} << 20;
    std::vector<double> times;
    for (int i = 0; i < 11; ++i) {
      void* memory = nullptr;
      ok(cudaMalloc(&memory, kBytes), "cudaMalloc");
      ok(cudaMemsetAsync(memory, 0, kBytes, stream_), "cudaMemset");
      synchronize();
      board_.meet(settings_.ranks);
      const auto start = std::chrono::steady_clock::now();
      ok(ncclAllReduce(memory, memory, kBytes, ncclInt8, ncclSum, comm_, stream_), "ncclAllReduce");
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
      synchronize();
      ok(cudaFree(memory), "cudaFree");
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  void call(const Row& row) {
    ok(row.contest->call(in_, out_, row.array, settings_.ranks, comm_, stream_), row.contest->name);
  }

  void synchronize() { ok(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  void capture(const Row& row) {
    board_.meet(settings_.ranks);  // no kernel may wait while graphs are made
    cudaGraph_t graph = nullptr;
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < settings_.graph_calls; ++i) call(row);
    ok(cudaStreamEndCapture(stream_, &graph), "capture");
    ok(cudaGraphInstantiate(&instance_, graph, 0), "cudaGraphInstantiate");
    ok(cudaGraphDestroy(graph), "cudaGraphDestroy");
    ok(cudaGraphUpload(instance_, stream_), "cudaGraphUpload");
    synchronize();
    board_.meet(settings_.ranks);
    ok(cudaGraphLaunch(instance_, stream_), "cudaGraphLaunch");
    synchronize();
  }

  // Microseconds per call.
  double time(const Row& row) {
    int calls = settings_.iterations;
    board_.meet(settings_.ranks);
    const auto start = std::chrono::steady_clock::now();
    if (instance_ != nullptr) {
      calls = settings_.graph_calls;
      ok(cudaGraphLaunch(instance_, stream_), "cudaGraphLaunch");
    } else {
      for (int i = 0; i < calls; ++i) call(row);
    }
    const std::chrono::duration<double, std::micro> launched =
        std::chrono::steady_clock::now() - start;
    launch_us_ = std::min(launch_us_, launched.count() / calls);
    synchronize();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
               .count() /
           calls;
  }

  // Runs one more call. Returns the number of wrong values at both ends of its result.
  long count_wrong(const Row& row) {
    ok(cudaMemsetAsync(out_, 0xee, bytes_, stream_), "cudaMemset");
    synchronize();
    board_.meet(settings_.ranks);
    call(row);
    const size_t outputs = row.contest->outputs(row.array, settings_.ranks);
    const size_t part = std::min<size_t>(outputs, 1 << 16);
    std::vector<float> host(part);
    long wrong = 0;
    for (const size_t first : {size_t{0}, outputs - part}) {
      ok(cudaMemcpyAsync(host.data(), out_ + first, part * sizeof(float), cudaMemcpyDeviceToHost,
                         stream_),
         "cudaMemcpy");
      synchronize();
      for (size_t i = 0; i < part; ++i)
        wrong += host[i] != row.contest->expected(first + i, row.array, rank_, settings_.ranks);
    }
    return wrong;
  }

  // The slowest rank's time, and the errors of all ranks.
  Board::Row combine(double us, long wrong) {
    board_.us[rank_] = us;
    board_.launch_us[rank_] = launch_us_;
    board_.wrong[rank_] = wrong;
    board_.meet(settings_.ranks);
    Board::Row all{};
    for (int r = 0; r < settings_.ranks; ++r) {
      all.us = std::max(all.us, board_.us[r]);
      all.launch_us = std::max(all.launch_us, board_.launch_us[r]);
      all.wrong += board_.wrong[r];
    }
    board_.meet(settings_.ranks);
    return all;
  }

  const Settings& settings_;
  const int rank_;
  Board& board_;
  size_t bytes_ = 0;
  double launch_us_ = 0;  // of the calling thread, per call, in the fastest repetition
  float *in_ = nullptr, *out_ = nullptr;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t instance_ = nullptr;
  std::vector<void*> handles_;
  std::vector<ncclWindow_t> windows_;
};

}  // namespace

void measure(const Settings& settings, Mode mode, int rank, Board& board) {
  Worker worker(settings, mode, rank, board);
  const std::vector<Row> rows = rows_of(settings);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Board::Row result = worker.run(rows[i]);
    if (rank == 0) board.rows[i] = result;
  }
  const double fresh = settings.launch_turns > 0 ? worker.fresh_call_us() : 0;
  if (rank == 0) board.rows[0].fresh_us = fresh;
}

}  // namespace weft::perf
