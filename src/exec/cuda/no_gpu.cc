// Replaces the GPU executor in builds without CUDA: there is never a GPU.
#include "src/base/error.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/cuda/net_memory.h"
#include "src/exec/cuda/rank_device.h"

namespace weft::cuda {

struct GpuExecutor::State {};
class GpuPlan {};

bool available() { return false; }
int current_device() { return 0; }
std::string bus_id(int) { return {}; }
int driver_version() { return 0; }
int runtime_version() { return 0; }

[[noreturn]] static void refuse() { fail(ncclInternalError, "built without CUDA"); }
bool on_device(const void*) { return false; }
void* allocate(size_t) { refuse(); }
void release(void*) { refuse(); }
int device_count() { return 0; }
RankDevice::RankDevice(int device, size_t bytes) : device_(device), size_(bytes) { refuse(); }
RankDevice::~RankDevice() = default;
void RankDevice::make_current() const {}
void RankDevice::upload(size_t, size_t) {}
void RankDevice::download(size_t, size_t) {}
void RankDevice::record(const std::function<void()>&) {}
void RankDevice::replay() {}
void RankDevice::wait() {}
GpuExecutor::GpuExecutor(const GpuOptions&) { refuse(); }
GpuExecutor::~GpuExecutor() = default;
GpuPeer GpuExecutor::describe() { return {}; }
std::string GpuExecutor::connect(std::span<const GpuPeer>, std::span<std::byte* const>,
                                 std::shared_ptr<const void>, Borrow,
                                 const std::function<bool(int)>&) {
  return {};
}
void GpuExecutor::settle(std::span<const std::string>, std::span<std::byte* const>,
                         const GpuPosts&) {}
size_t GpuExecutor::area_bytes(int, size_t, bool) { return 0; }
size_t GpuExecutor::area_words_bytes(int) { return 0; }
bool GpuExecutor::complete() const { return false; }
LaneGpuMemory net_memory(int, size_t, bool) { return {}; }
bool exports_dma_buf(int) { return false; }
std::shared_ptr<LanePlan> GpuExecutor::prepare_lanes(const VerifiedSchedule&,
                                                     const VerifiedSchedule*, int) {
  refuse();
}
std::shared_ptr<float> GpuExecutor::zeros(size_t) { refuse(); }
OwnBuffer GpuExecutor::own_buffer(size_t) { refuse(); }
GpuExecutor::LaneShape GpuExecutor::shape_of(const LanePlan&) { return {}; }
void GpuExecutor::run_messages(std::span<const GpuMessage>, std::span<const GpuMessage>) {}
int GpuExecutor::take_blocks() { return 0; }
void GpuExecutor::run_lanes(LanePlan&, const GpuCall&) {}
int GpuExecutor::device() const { return 0; }
void GpuExecutor::set_priority(int) {}
bool GpuExecutor::one_device() const { return false; }
void GpuExecutor::write_probes() {}
int GpuExecutor::missing_probe() const { return -1; }
std::shared_ptr<GpuPlan> GpuExecutor::prepare(const Program&, const Program*) { refuse(); }
std::shared_ptr<GpuPlan> GpuExecutor::prepare_packets(const Program&, bool) { refuse(); }
bool GpuExecutor::takes_packets(const Program&) const { return false; }
GpuExecutor::Launch GpuExecutor::begin(std::span<const cudaStream_t>) { return {}; }
RankBlocks& GpuExecutor::blocks() { refuse(); }
void GpuExecutor::use_blocks(int) {}
bool GpuExecutor::captured() const { return false; }
void GpuExecutor::run(GpuPlan&, const GpuCall&) {}
void GpuExecutor::run_send_recvs(std::span<const GpuMessage>, std::span<const GpuMessage>) {}
bool GpuExecutor::copies(CollectiveKind, size_t) { return false; }
void GpuExecutor::copy(const Collective&, const GpuCall&) {}
void GpuExecutor::copy_send_recvs(std::span<const GpuMessage>, std::span<const GpuMessage>) {}
void GpuExecutor::connect_rings(std::span<const SendPort>, std::span<const RecvPort>,
                                std::vector<std::shared_ptr<const void>>) {}
void GpuExecutor::disconnect_rings() noexcept {}
void GpuExecutor::run_rings(const Program&, std::span<const GpuRingJob>, size_t) {}
bool GpuExecutor::run_ring_exchange(const GpuRingExchange&) { return false; }
void GpuExecutor::wait_word(const uint32_t*) {}
void GpuExecutor::write_word(uint32_t*) {}
KernelTimes GpuExecutor::begin_timing() { return {}; }
void GpuExecutor::end_timing(const KernelTimes&) {}
void GpuExecutor::end(std::span<const cudaStream_t>) {}
bool GpuExecutor::busy() const { return false; }
size_t GpuExecutor::device_bytes() const { return 0; }
int GpuExecutor::graphs() const { return 0; }
void GpuExecutor::register_memory(const void*, size_t) {}
void GpuExecutor::deregister_memory(const void*) {}
void GpuExecutor::peer_left(int) noexcept {}
SignalWords GpuExecutor::signal_words() const { return {}; }
bool GpuExecutor::reaches(int) const { return false; }
void GpuExecutor::stop() noexcept {}
LongWait GpuExecutor::long_wait() { return {}; }
GpuError GpuExecutor::error() const { return {}; }
void GpuExecutor::number_call(int64_t) {}
void GpuExecutor::synchronize() noexcept {}

}  // namespace weft::cuda
