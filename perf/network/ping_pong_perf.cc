// ping_pong_perf measures a message to and fro between GPUs of two hosts, in a CUDA graph.
// Processes that share one GPU play the hosts (NCCL_HOSTID), so it needs MPS: tests/gpu/mps.sh
// ping_pong_perf [RANKS_PER_HOST] [BYTES] [HOSTS]. The first rank of either host plays, the others
// only belong to the communicator: with more than one, lanes carry the messages. HOSTS 1: both
// players are on one host, which leaves the network out. Calls nothing but NCCL's API, so that
// LD_PRELOAD can put NCCL in the library's place.
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kRounds = 20, kReplays = 200, kWarmUp = 20;

// Lies in memory that all ranks share.
struct Board {
  ncclUniqueId id;
  std::atomic<int> arrived{0};

  void meet(int ranks) {
    const int round = arrived.fetch_add(1) / ranks;
    while (arrived.load() < (round + 1) * ranks) usleep(50);
  }
};

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
void check(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(ncclGetErrorString(result));
}

// Rank 0 serves and gets back what it sent; the other player returns what it gets.
void play_rounds(ncclComm_t comm, int rank, int peer, char* out, char* in, size_t bytes,
                 cudaStream_t stream) {
  for (int round = 0; round < kRounds; round++) {
    if (rank == 0) check(ncclSend(out, bytes, ncclChar, peer, comm, stream));
    check(ncclRecv(in, bytes, ncclChar, peer, comm, stream));
    if (rank != 0) check(ncclSend(in, bytes, ncclChar, peer, comm, stream));
  }
}

// Microseconds of half a round, by replay.
std::vector<double> replay(cudaGraphExec_t graph, int rank, char* out, const char* in, size_t bytes,
                           cudaStream_t stream) {
  std::vector<double> times;
  std::vector<char> back(bytes);
  for (int n = 0; n < kReplays; n++) {
    const int ball = n % 100 + 1;
    if (rank == 0) check(cudaMemsetAsync(out, ball, bytes, stream));
    check(cudaStreamSynchronize(stream));
    const auto begin = std::chrono::steady_clock::now();
    check(cudaGraphLaunch(graph, stream));
    check(cudaStreamSynchronize(stream));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (n >= kWarmUp) times.push_back(took.count() / (2 * kRounds));
    check(cudaMemcpy(back.data(), in, bytes, cudaMemcpyDeviceToHost));
    if (std::any_of(back.begin(), back.end(), [&](char c) { return c != static_cast<char>(ball); }))
      throw std::runtime_error("the data that came back is wrong");
  }
  std::sort(times.begin(), times.end());
  return times;
}

void play(int rank, int per_host, size_t bytes, bool apart, Board& board) {
  const int ranks = 2 * per_host;
  setenv("NCCL_HOSTID", rank < per_host || !apart ? "left" : "right", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 0);
  check(cudaSetDevice(0));
  if (rank == 0) check(ncclGetUniqueId(&board.id));
  board.meet(ranks);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, board.id, rank));
  if (rank % per_host == 0) {
    const int peer = rank == 0 ? per_host : 0;
    cudaStream_t stream = nullptr;
    char *out = nullptr, *in = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc(&out, bytes));
    check(cudaMalloc(&in, bytes));
    play_rounds(comm, rank, peer, out, in, bytes, stream);
    check(cudaStreamSynchronize(stream));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    play_rounds(comm, rank, peer, out, in, bytes, stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&ready, graph, 0));
    const std::vector<double> times = replay(ready, rank, out, in, bytes, stream);
    if (rank == 0)
      std::printf(
          "%zu bytes, %d ranks a host: half a ping-pong takes %.2f us (median), %.2f least\n",
          bytes, per_host, times[times.size() / 2], times.front());
    std::fflush(stdout);
  }
  board.meet(ranks);
  check(ncclCommDestroy(comm));
}

}  // namespace

int main(int argc, char** argv) {
  const int per_host = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto bytes = static_cast<size_t>(argc > 2 ? std::atoll(argv[2]) : 8);
  const int hosts = argc > 3 ? std::atoi(argv[3]) : 2;
  if (argc > 4 || hosts < 1 || hosts > 2 || per_host < 1 || per_host > 8 || bytes < 1 ||
      bytes > (size_t{1} << 30)) {
    std::fprintf(stderr, "usage: ping_pong_perf [RANKS_PER_HOST, 2] [BYTES, 8] [HOSTS, 2]\n");
    return 2;
  }
  void* shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  Board& board = *new (shared) Board;
  for (int rank = 0; rank < 2 * per_host; rank++)
    if (fork() == 0) {
      alarm(120);  // if a rank fails, the others wait for it
      try {
        play(rank, per_host, bytes, hosts == 2, board);
        std::_Exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "ping_pong_perf: rank %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
    }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;)
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  return worst;
}
