// first_use reproduces a hang of plain CUDA. Threads share a GPU, and each has its own streams.
// They launch kernels that wait for the kernels of the other threads. Every thread launches in the
// same order, all kernels fit on the GPU, and there are more hardware queues than streams. Still
// some processes hang when threads use streams for the first time at once: two streams get the same
// queue. There is no hang if first uses take turns, or if every stream has been used before. Weft's
// only part in it is the command line. On an H200 `first_use -n 12` saw 2, 0 and 0 of
// 12 processes hang (at once, in turns, used before). They hang at operation 0 to 17, or at the
// first copies to the host. Neither graphs nor copies are needed for it.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/tools/command_line.h"

namespace {

constexpr int kThreads = 4, kStreams = 3, kCases = 36, kMostBlocks = 32, kSteps = 150;
constexpr size_t kMostBytes = 8 << 20;
constexpr int kHung = 1;  // exit code of a process

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
#define CHECK(call) check((call), #call)

// In device memory. Kernel k of every thread meets the kernels k of the others, block by block.
struct Meetings {
  unsigned met[8 * kSteps][kMostBlocks];
  unsigned next[kThreads], blocks_done[kThreads];
  unsigned hung;
};

// Kernels with more parameters take longer to launch, as real ones do.
struct Arguments {
  Meetings* meetings;
  int thread;
  char more[3000];
};

__global__ void __launch_bounds__(512, 1) meet(const __grid_constant__ Arguments arguments) {
  Meetings& m = *arguments.meetings;
  if (threadIdx.x != 0) return;
  const unsigned number = *(volatile unsigned*)&m.next[arguments.thread];
  unsigned* met = &m.met[number][blockIdx.x];
  atomicAdd(met, 1);
  long long began = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
  while (*(volatile unsigned*)met < kThreads && *(volatile unsigned*)&m.hung == 0) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - began > 1'000'000'000) m.hung = 1;
  }
  __threadfence();
  if (atomicInc(&m.blocks_done[arguments.thread], gridDim.x - 1) == gridDim.x - 1)
    *(volatile unsigned*)&m.next[arguments.thread] = number + 1;
}

__global__ void nothing() {}

struct Case {
  int stream, blocks, threads;
  size_t bytes;
};

// All threads share a seed that decides what they do. Each has its own seed that decides when.
class Thread {
 public:
  Thread(int number, unsigned seed, Meetings* meetings, char* memory, std::mutex* turns)
      : common_(seed), own_(seed + 1 + static_cast<unsigned>(number)), turns_(turns) {
    arguments_.meetings = meetings;
    arguments_.thread = number;
    memory_ = memory + static_cast<size_t>(number) * 2 * kMostBytes;
    for (cudaStream_t& stream : streams_)
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&order_, &join_})
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    for (int i = 0; i < kCases; i++) {
      const size_t bytes = (size_t{1} << below(4)) * (1 + below(below(4) == 0 ? 100'000 : 3'000));
      cases_.push_back({i % kStreams,
                        static_cast<int>(std::clamp<size_t>(bytes / 1024, 1, kMostBlocks)),
                        bytes > 32'768 ? 512 : 128, std::min(kMostBytes, 8 * bytes + 512)});
    }
  }

  void use_streams() {
    for (const cudaStream_t stream : streams_) {
      nothing<<<1, 1, 0, stream>>>();
      CHECK(cudaStreamSynchronize(stream));
    }
  }

  void run() {
    for (int step = 0; step < kSteps; step++) {
      if (own_() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 3000));
      const size_t calls = below(6) == 0 ? 4 : 1;
      std::vector<Case> some;
      for (size_t i = 0; i < calls; i++) some.push_back(cases_[below(kCases)]);
      const auto turn = turn_with(some[0].stream);
      if (calls == 1)
        CHECK(cudaMemcpyAsync(memory_, memory_ + kMostBytes, some[0].bytes,
                              cudaMemcpyDeviceToDevice, streams_[some[0].stream]));
      launch(some);
    }
    for (const cudaStream_t stream : streams_) CHECK(cudaStreamSynchronize(stream));
  }

 private:
  unsigned below(unsigned limit) { return static_cast<unsigned>(common_() % limit); }

  // A stream that is only joined is not used: events give it no queue.
  std::unique_lock<std::mutex> turn_with(int stream) {
    const bool is_new = !std::exchange(used_[stream], true);
    if (turns_ == nullptr || !is_new) return {};
    return std::unique_lock(*turns_);
  }

  // Kernels go to the first stream, after earlier kernels. Other streams are joined and wait.
  void launch(const std::vector<Case>& some) {
    std::vector<cudaStream_t> streams;
    for (const Case& c : some)
      if (std::find(streams.begin(), streams.end(), streams_[c.stream]) == streams.end())
        streams.push_back(streams_[c.stream]);
    if (last_ != nullptr && last_ != streams[0]) CHECK(cudaStreamWaitEvent(streams[0], order_, 0));
    last_ = streams[0];
    for (size_t i = 1; i < streams.size(); i++) {
      CHECK(cudaEventRecord(join_, streams[i]));
      CHECK(cudaStreamWaitEvent(streams[0], join_, 0));
    }
    for (const Case& c : some) {
      meet<<<c.blocks, c.threads, 0, streams[0]>>>(arguments_);
      CHECK(cudaGetLastError());
    }
    CHECK(cudaEventRecord(order_, streams[0]));
    if (streams.size() == 1) return;
    CHECK(cudaEventRecord(join_, streams[0]));
    for (size_t i = 1; i < streams.size(); i++) CHECK(cudaStreamWaitEvent(streams[i], join_, 0));
  }

  Arguments arguments_{};
  std::mt19937 common_, own_;
  std::mutex* const turns_;
  char* memory_ = nullptr;
  std::array<cudaStream_t, kStreams> streams_{};
  std::array<bool, kStreams> used_{};
  cudaEvent_t order_ = nullptr, join_ = nullptr;
  cudaStream_t last_ = nullptr;
  std::vector<Case> cases_;
};

constexpr const char* kAtOnce = "at-once";
constexpr const char* kInTurns = "in-turns";
constexpr const char* kUsedBefore = "used-before";

// Runs one process. Returns the exit code.
int child(const std::string& way, int seed) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  Meetings* meetings = nullptr;
  char* memory = nullptr;
  CHECK(cudaMalloc(&meetings, sizeof *meetings));
  CHECK(cudaMemset(meetings, 0, sizeof *meetings));
  CHECK(cudaMalloc(&memory, 2 * kThreads * kMostBytes));
  for (const void* kernel :
       {reinterpret_cast<const void*>(meet), reinterpret_cast<const void*>(nothing)}) {
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, kernel));  // loads the kernel
  }
  int per_multiprocessor = 0, multiprocessors = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, meet, 512, 0));
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  if (per_multiprocessor * multiprocessors < kThreads * kMostBlocks)
    throw std::runtime_error("this GPU is too small: not all thread blocks fit");
  CHECK(cudaDeviceSynchronize());
  std::mutex turns;
  std::vector<Thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back(t, static_cast<unsigned>(seed), meetings, memory,
                         way == kInTurns ? &turns : nullptr);
  if (way == kUsedBefore)
    for (Thread& thread : threads) thread.use_streams();
  std::vector<std::jthread> running;
  for (Thread& thread : threads) running.emplace_back([&thread] { thread.run(); });
  running.clear();
  unsigned hung = 0;
  CHECK(cudaMemcpy(&hung, &meetings->hung, sizeof hung, cudaMemcpyDeviceToHost));
  return hung != 0 ? kHung : 0;
}

// Starts this program again as another process.
int run_child(const std::string& way, int seed) {
  const std::string number = std::to_string(seed);
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "first_use", "--child", way.c_str(), "--seed", number.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    throw std::runtime_error("cannot start a process");
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code != 0 && code != kHung)
    throw std::runtime_error("a process ended with " + std::to_string(code));
  return code;
}

int compare(int processes, int seed, const std::string& only) {
  constexpr std::array kWays{kAtOnce, kInTurns, kUsedBefore};
  std::array<int, kWays.size()> hung{};
  // The ways take turns, so that a disturbance of the machine does not affect one way alone.
  for (int i = 0; i < processes; i++)
    for (size_t w = 0; w < kWays.size(); w++)
      if (only.empty() || only == kWays[w]) hung[w] += run_child(kWays[w], seed + i);
  for (size_t w = 0; w < kWays.size(); w++)
    if (only.empty() || only == kWays[w])
      std::printf("first uses %-12s %d of %d processes hung\n", kWays[w], hung[w], processes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int processes = 20, seed = 1;
  std::string only, as_child;
  weft::CommandLine program(
      "first_use",
      "Streams that threads first use at once: a hang of CUDA, and two ways around it");
  program.add_option("-n", processes, "processes for each way").between(1, 10000);
  program.add_option("--seed", seed, "of the first process; the next one has the next");
  program.add_option("--only", only, "this way alone").one_of({kAtOnce, kInTurns, kUsedBefore});
  program.add_option("--child", as_child, "one such process, here; exit code 1: it hung");
  int code = 0;
  program.calls([&] {
    try {
      code = as_child.empty() ? compare(processes, seed, only) : child(as_child, seed);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "first_use: %s\n", error.what());
      code = 3;
    }
  });
  const int usage = program.run(argc, argv);
  return usage != 0 ? usage : code;
}
