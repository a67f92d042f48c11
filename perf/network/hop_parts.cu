// hop_parts measures what a message between GPUs of two hosts is made of, without the library: half
// a round trip of TCP on loopback between processes that poll, a word from a GPU to a polling
// thread and back, and a kernel in a graph. Beside ping_pong_perf it says how much the library
// adds.
#include <cuda_runtime.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5000, kWords = 10000, kKernels = 200, kReplays = 10;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}
void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
void check(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string(what) + " failed");
}

// The two ends of a connection over loopback.
struct Pair {
  int here = -1, there = -1;
  Pair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&at);
    socklen_t size = sizeof at;
    check(bind(listener, address, size) == 0 && listen(listener, 1) == 0, "listen()");
    check(getsockname(listener, address, &size) == 0, "getsockname()");
    here = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(here, address, size) == 0, "connect()");
    there = accept(listener, nullptr, nullptr);
    check(there >= 0, "accept()");
    close(listener);
    const int on = 1;
    for (const int end : {here, there}) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Pair() {
    close(here);
    close(there);
  }
};

void receive(int socket, std::vector<char>& bytes) {
  for (size_t got = 0; got < bytes.size();) {
    const ssize_t more = recv(socket, bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
    if (more > 0) got += static_cast<size_t>(more);
  }
}

void measure_tcp(size_t size) {
  const Pair pair;
  std::vector<char> bytes(size);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < kRounds; i++) {
      receive(pair.there, bytes);
      send(pair.there, bytes.data(), size, 0);
    }
    std::_Exit(0);
  }
  check(child > 0, "fork()");
  std::vector<double> halves, sends;
  for (int i = 0; i < kRounds; i++) {
    const auto begin = Clock::now();
    check(send(pair.here, bytes.data(), size, 0) == static_cast<ssize_t>(size), "send()");
    sends.push_back(us_since(begin));
    receive(pair.here, bytes);
    halves.push_back(us_since(begin) / 2);
  }
  waitpid(child, nullptr, 0);
  std::sort(halves.begin(), halves.end());
  std::sort(sends.begin(), sends.end());
  std::printf("TCP, %zu bytes: half a round takes %.2f us (median), send() %.2f of it\n", size,
              halves[kRounds / 2], sends[kRounds / 2]);
}

__global__ void play(volatile unsigned* out, volatile unsigned* in, unsigned rounds) {
  for (unsigned round = 1; round <= rounds; round++) {
    *out = round;
    while (*in != round) continue;
  }
}
__global__ void nothing() {}

void measure_words() {
  constexpr size_t kApart = 1024;  // words, so that they share no cache line
  unsigned* words = nullptr;
  check(cudaHostAlloc(&words, 2 * kApart * sizeof(unsigned), cudaHostAllocDefault));
  std::fill_n(words, 2 * kApart, 0u);
  std::atomic<bool> stop{false};
  std::jthread mirror([&] {
    while (!stop.load(std::memory_order_relaxed))
      __atomic_store_n(&words[kApart], __atomic_load_n(&words[0], __ATOMIC_ACQUIRE),
                       __ATOMIC_RELEASE);
  });
  const auto begin = Clock::now();
  play<<<1, 1>>>(words, words + kApart, kWords);
  const cudaError_t error = cudaDeviceSynchronize();
  const double us = us_since(begin) / kWords;
  stop = true;
  check(error);
  std::printf("a word from the GPU to a thread and back takes %.2f us\n", us);
  mirror.join();
  check(cudaFreeHost(words));
}

void measure_kernels() {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kKernels; i++) nothing<<<1, 512, 0, stream>>>();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));
  check(cudaGraphLaunch(ready, stream));
  check(cudaStreamSynchronize(stream));
  const auto begin = Clock::now();
  for (int i = 0; i < kReplays; i++) check(cudaGraphLaunch(ready, stream));
  check(cudaStreamSynchronize(stream));
  std::printf("an empty kernel in a graph takes %.2f us\n", us_since(begin) / kReplays / kKernels);
}

}  // namespace

int main() {
  try {
    for (const size_t size : {size_t{8}, size_t{1024}, size_t{8192}}) measure_tcp(size);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      std::printf("no GPU here\n");
      return 77;
    }
    measure_words();
    measure_kernels();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hop_parts: %s\n", error.what());
    return 1;
  }
}
