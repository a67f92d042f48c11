// gpu_load_probe LIBRARY measures a fresh process: the time to load the library, to make a
// communicator and to run the first call. Exit 1: slower than a generous limit. Exit 77: no GPU.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "nccl.h"

namespace {

constexpr double kLimitMs = 200;  // the aim is 50

template <typename Function>
Function* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "the library has no %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

template <typename Call>
double timed(const char* what, Call call) {
  const auto start = std::chrono::steady_clock::now();
  const auto result = call();
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::printf("%-46s %9.2f ms\n", what, ms);
  if (static_cast<int>(result) != 0) {
    std::fprintf(stderr, "%s failed: %d\n", what, static_cast<int>(result));
    std::exit(1);
  }
  return ms;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gpu_load_probe LIBRARY\n");
    return 2;
  }
  void* library = nullptr;
  const double load = timed("dlopen", [&] {
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? 1 : 0;
  });
  if (auto* host_mode = dlsym(library, "weftHostMode");
      host_mode != nullptr && reinterpret_cast<int (*)()>(host_mode)() != 0) {
    std::printf("SKIPPED: no GPU here, or WEFT_HOST_MODE is set\n");
    const char* required = std::getenv("WEFT_REQUIRE");
    return required != nullptr && std::string(required).find("gpu") != std::string::npos ? 1 : 77;
  }
  const auto init = find<decltype(ncclCommInitRank)>(library, "ncclCommInitRank");
  const auto unique_id = find<decltype(ncclGetUniqueId)>(library, "ncclGetUniqueId");
  const auto all_reduce = find<decltype(ncclAllReduce)>(library, "ncclAllReduce");
  const auto destroy = find<decltype(ncclCommDestroy)>(library, "ncclCommDestroy");

  timed("the CUDA context (not ours)", [] { return cudaFree(nullptr); });
  void* data = nullptr;
  cudaStream_t stream = nullptr;
  timed("a buffer and a stream (not ours)", [&] {
    const cudaError_t error = cudaMalloc(&data, 1 << 20);
    return error != cudaSuccess ? error : cudaStreamCreate(&stream);
  });
  ncclUniqueId ids[2];
  ncclComm_t comms[2] = {};
  timed("ncclGetUniqueId", [&] { return unique_id(&ids[0]); });
  unique_id(&ids[1]);
  const double first_init =
      timed("first communicator, one rank", [&] { return init(&comms[0], 1, ids[0], 0); });
  const double later_init =
      timed("second communicator, one rank", [&] { return init(&comms[1], 1, ids[1], 0); });
  const auto call = [&] {
    const ncclResult_t result =
        all_reduce(data, data, 1000, ncclBfloat16, ncclSum, comms[0], stream);
    return result != ncclSuccess ? static_cast<int>(result)
                                 : static_cast<int>(cudaStreamSynchronize(stream));
  };
  const double first_call = timed("first call", call);
  timed("second call", call);
  destroy(comms[0]);
  destroy(comms[1]);

  const double kernels = first_init - later_init;
  std::printf("%-46s %9.2f ms (aim 50, limit %.0f)\n",
              "loading all kernels: first - second communicator", kernels, kLimitMs);
  const bool fast = load < kLimitMs && kernels < kLimitMs && first_call < kLimitMs;
  if (!fast) std::printf("FAILED: above %.0f ms\n", kLimitMs);
  return fast ? 0 : 1;
}
