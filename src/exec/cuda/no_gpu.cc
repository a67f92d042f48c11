// Stands in for the GPU executor in builds without CUDA: there is never a GPU.
#include "src/base/error.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {

struct GpuExecutor::State {};

bool available() { return false; }
int current_device() { return 0; }

[[noreturn]] static void refuse() { fail(ncclInternalError, "built without CUDA"); }
void* allocate(size_t) { refuse(); }
void release(void*) { refuse(); }
GpuExecutor::GpuExecutor(int, int, int, int, bool, uint64_t) { refuse(); }
GpuExecutor::~GpuExecutor() = default;
GpuPeer GpuExecutor::describe() const { return {}; }
void GpuExecutor::connect(std::span<const GpuPeer>) {}
int GpuExecutor::device() const { return 0; }
size_t GpuExecutor::packed_limit() { return 0; }
void GpuExecutor::begin(std::span<const cudaStream_t>) {}
void GpuExecutor::run(const Program&, const GpuCall&) {}
void GpuExecutor::run_pairs(std::span<const GpuMessage>, std::span<const GpuMessage>) {}
void GpuExecutor::end(std::span<const cudaStream_t>) {}
void GpuExecutor::stop() noexcept {}
std::string GpuExecutor::error() const { return {}; }
void GpuExecutor::synchronize() noexcept {}

}  // namespace weft::cuda
