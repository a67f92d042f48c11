// See rank.h.
#include "perf/rankperf/rank.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "perf/rankperf/device.h"

namespace weft::perf::rankperf {
namespace {

constexpr size_t kSizes[] = {8 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20, 256 << 20};
constexpr int kWarmUp = 3;
constexpr int kRepetitions = 5;
constexpr size_t kChecked = 1 << 16;  // elements at either end

// Calls in a repetition, and in a graph.
int batch(size_t bytes) { return bytes <= (1 << 20) ? 20 : 4; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Rank {
 public:
  Rank(Team& team, int rank) : team_(team), rank_(rank) {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(ncclCommInitRank(&comm_, team.ranks, team.id, rank), "ncclCommInitRank");
    meet();
    if (rank == 0)
      team.initialized(std::chrono::duration<double>(Clock::now() - team.began).count());
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    for (float** buffer : {&in_, &out_}) check(cudaMalloc(buffer, team.most_bytes), "cudaMalloc");
  }

  // The process ends soon after: only the communicator is given back.
  void leave() {
    meet();
    check(ncclCommDestroy(comm_), "ncclCommDestroy");
  }

  void measure(const Collective& collective, size_t bytes) {
    const auto n = static_cast<size_t>(team_.ranks);
    const Call call{in_, out_, bytes / sizeof(float) / n * n, team_.ranks, comm_, stream_};
    fill(in_, call.count, rank_, stream_);
    check(cudaMemsetAsync(out_, 0xee, team_.most_bytes, stream_), "cudaMemset");
    synchronize();
    meet();
    for (int i = 0; i < kWarmUp; ++i) collective.call(call);
    synchronize();
    meet();
    Times& mine = team_.of_rank[static_cast<size_t>(rank_)];
    mine.wall_us = on_stream(collective, call, batch(bytes));
    mine.graph_us = in_graph(collective, call, batch(bytes));
    mine.wrong = wrong_values(collective, call.count);
    meet();
    if (rank_ == 0) team_.measured(collective, bytes, slowest());
    meet();
  }

 private:
  void meet() { team_.meeting.arrive_and_wait(); }
  void synchronize() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  // Microseconds a call, all of the work waited for; ranks begin together.
  template <typename Work>
  double timed(int calls, Work work) {
    meet();
    const auto began = Clock::now();
    work();
    synchronize();
    return std::chrono::duration<double, std::micro>(Clock::now() - began).count() / calls;
  }

  double on_stream(const Collective& collective, const Call& call, int calls) {
    std::vector<double> us;
    for (int repetition = 0; repetition < kRepetitions; ++repetition)
      us.push_back(timed(calls, [&] {
        for (int i = 0; i < calls; ++i) collective.call(call);
      }));
    return median(us);
  }

  double in_graph(const Collective& collective, const Call& call, int calls) {
    meet();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin of capture");
    for (int i = 0; i < calls; ++i) collective.call(call);
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(executable, stream_), "cudaGraphUpload");
    synchronize();
    const auto launch = [&] { check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch"); };
    timed(calls, launch);  // the first launch does not count
    std::vector<double> us;
    for (int repetition = 0; repetition < kRepetitions; ++repetition)
      us.push_back(timed(calls, launch));
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return median(us);
  }

  size_t wrong_values(const Collective& collective, size_t count) {
    const size_t outputs = collective.outputs(count, team_.ranks);
    std::vector<float> got(std::min(outputs, kChecked));
    size_t wrong = 0;
    for (const size_t from : {size_t{0}, outputs - got.size()}) {
      check(cudaMemcpy(got.data(), out_ + from, got.size() * sizeof(float), cudaMemcpyDeviceToHost),
            "cudaMemcpy");
      for (size_t i = 0; i < got.size(); ++i) {
        const float want = collective.expected(from + i, count, rank_, team_.ranks);
        // Not NaN either.
        if (!(std::fabs(got[i] - want) <= 1e-5f * std::fabs(want))) ++wrong;
      }
    }
    return wrong;
  }

  Times slowest() const {
    Times all;
    for (const Times& times : team_.of_rank) {
      all.wall_us = std::max(all.wall_us, times.wall_us);
      all.graph_us = std::max(all.graph_us, times.graph_us);
      all.wrong += times.wrong;
    }
    return all;
  }

  Team& team_;
  const int rank_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float* in_ = nullptr;
  float* out_ = nullptr;
};

}  // namespace

void run_rank(Team& team, int rank) {
  Rank self(team, rank);
  for (const Collective& collective : collectives())
    for (const size_t bytes : kSizes)
      if (bytes <= team.most_bytes) self.measure(collective, bytes);
  self.leave();
}

}  // namespace weft::perf::rankperf
