// Measures which CUDA calls wait for streams that wait, and block other threads meanwhile. Prints a
// table. DeviceStore exists because of these results.
#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/support/arena.h"
#include "tests/gpu/support/gpu.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kHeld{250}, kHeadStart{50};
constexpr size_t kBytes = size_t{1} << 20;

struct TimedCall {
  const char* name;
  std::function<void()> call;
};

double ms_of(const std::function<void()>& call) {
  const auto begun = Clock::now();
  call();
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

// Objects to free. They are made anew for every measurement while no stream waits.
struct Doomed {
  void *host = nullptr, *device = nullptr;
  std::vector<char> pageable = std::vector<char>(kBytes);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;

  Doomed() {
    WEFT_CUDA(cudaHostAlloc(&host, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
    WEFT_CUDA(cudaMalloc(&device, kBytes));
    WEFT_CUDA(cudaHostRegister(pageable.data(), kBytes, cudaHostRegisterMapped));
    WEFT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    WEFT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  // `calls()` sets a pointer to nullptr when it frees the object.
  ~Doomed() {
    cudaFreeHost(host);
    cudaFree(device);
    if (!pageable.empty()) cudaHostUnregister(pageable.data());
    if (stream != nullptr) cudaStreamDestroy(stream);
    if (event != nullptr) cudaEventDestroy(event);
    cudaGetLastError();
  }
  Doomed(const Doomed&) = delete;
  Doomed& operator=(const Doomed&) = delete;

  std::vector<TimedCall> calls() {
    return {{"nothing", [] {}},
            {"cudaFreeHost", [this] { WEFT_CUDA(cudaFreeHost(std::exchange(host, nullptr))); }},
            {"cudaFree", [this] { WEFT_CUDA(cudaFree(std::exchange(device, nullptr))); }},
            {"cudaHostUnregister",
             [this] {
               WEFT_CUDA(cudaHostUnregister(pageable.data()));
               pageable.clear();
             }},
            {"cudaStreamDestroy",
             [this] { WEFT_CUDA(cudaStreamDestroy(std::exchange(stream, nullptr))); }},
            {"cudaEventDestroy",
             [this] { WEFT_CUDA(cudaEventDestroy(std::exchange(event, nullptr))); }}};
  }
};

class BlockingCalls : public GpuTest {
 protected:
  BlockingCalls() : GpuTest(std::chrono::seconds(60)) {}

  void SetUp() override {
    WEFT_CUDA(cudaSetDevice(0));
    arena_ = std::make_unique<Arena>(4 * kBytes, Origin::kCudaMalloc);
    WEFT_CUDA(cudaHostAlloc(&pinned_, kBytes, cudaHostAllocMapped));
    stream_number(0);
    alone_ = std::make_unique<CommSet>(1);
    for (const TimedCall& call : disturbed()) call.call();  // loads the code that they need
    WEFT_CUDA(cudaDeviceSynchronize());
  }
  void TearDown() override {
    WEFT_CUDA(cudaDeviceSynchronize());
    alone_.reset();
    arena_.reset();
    cudaFreeHost(pinned_);
    cudaEventDestroy(event_);
    GpuTest::TearDown();
  }

  // The calls of another rank at the same time.
  std::vector<TimedCall> disturbed() {
    const cudaStream_t stream = stream_number(1);
    char *data = arena_->data(), *other = data + kBytes;
    return {
        {"kernel launch",
         [=, this] {
           WEFT_OK(ncclAllReduce(data, other, 1000, ncclFloat32, ncclSum, (*alone_)[0], stream));
         }},
        {"cudaMemcpyAsync",
         [=, this] {
           WEFT_CUDA(cudaMemcpyAsync(data, pinned_, kBytes, cudaMemcpyHostToDevice, stream));
         }},
        {"cudaMemcpyBatchAsync", [=] { copy_batch(other, data, stream); }},
        {"cudaEventRecord",
         [=, this] {
           if (event_ == nullptr)
             WEFT_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
           WEFT_CUDA(cudaEventRecord(event_, stream));
         }},
        {"cudaStreamSynchronize", [=] { WEFT_CUDA(cudaStreamSynchronize(stream)); }}};
  }

  static void copy_batch([[maybe_unused]] char* to, [[maybe_unused]] char* from,
                         [[maybe_unused]] cudaStream_t stream) {
#if CUDART_VERSION >= 13000
    void* destinations[] = {to};
    const void* sources[] = {from};
    size_t bytes = 4096, first = 0;
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    WEFT_CUDA(
        cudaMemcpyBatchAsync(destinations, sources, &bytes, 1, &attributes, &first, 1, stream));
#endif
  }

  // A stream waits between begin() and end(). Meanwhile one thread frees and another works.
  void measure(const char* title, const std::function<void()>& begin,
               const std::function<void()>& end) {
    std::printf("%s waits for %lld ms; ms that the call itself, and other threads' calls took:\n",
                title, static_cast<long long>(kHeld.count()));
    const size_t ways = Doomed().calls().size(), others = disturbed().size();
    for (size_t f = 0; f < ways; ++f)
      for (size_t d = 0; d < others; ++d) {
        Doomed doomed;
        const TimedCall frees = doomed.calls()[f], works = disturbed()[d];
        double freed = 0, worked = 0;
        begin();
        std::this_thread::sleep_for(kHeadStart);
        std::thread first([&] { freed = ms_of(frees.call); });
        std::thread second([&] {
          std::this_thread::sleep_for(kHeadStart);
          worked = ms_of(works.call);
        });
        std::this_thread::sleep_for(kHeld);
        end();
        first.join();
        second.join();
        WEFT_CUDA(cudaDeviceSynchronize());
        std::printf("  %-20s %6.1f   %-22s %6.1f%s\n", frees.name, freed, works.name, worked,
                    worked > 100 ? "  held up" : "");
        if (f > 0) continue;
        EXPECT_LT(worked, 100) << works.name << " waits though nobody frees anything";
      }
  }

  std::unique_ptr<Arena> arena_;
  std::unique_ptr<CommSet> alone_;
  void* pinned_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

TEST_F(BlockingCalls, WhileAStreamWaitsForAWord) {
  void* wait = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  WEFT_CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &wait, 12000, cudaEnableDefault,
                                             &found));
  ASSERT_NE(wait, nullptr);
  auto* word = static_cast<std::atomic<uint32_t>*>(pinned_);
  void* on_device = nullptr;
  WEFT_CUDA(cudaHostGetDevicePointer(&on_device, pinned_, 0));
  measure(
      "a stream",
      [&] {
        word->store(0);
        ASSERT_EQ(reinterpret_cast<decltype(cuStreamWaitValue32)*>(wait)(
                      stream_number(0), reinterpret_cast<CUdeviceptr>(on_device), 1,
                      CU_STREAM_WAIT_VALUE_EQ),
                  CUDA_SUCCESS);
      },
      [&] { word->store(1); });
}

TEST_F(BlockingCalls, WhileAKernelWaitsForAPeer) {
  std::unique_ptr<CommSet> pair;
  measure(
      "a kernel",
      [&] {
        pair = std::make_unique<CommSet>(2);
        WEFT_OK(ncclAllReduce(arena_->data() + 2 * kBytes, arena_->data() + 3 * kBytes, 1000,
                              ncclFloat32, ncclSum, (*pair)[0], stream_number(0)));
      },
      [&] { WEFT_OK(ncclCommRevoke((*pair)[0], NCCL_REVOKE_DEFAULT)); });
}

}  // namespace
}  // namespace weft::test
