// Frames of lanes from a peer that sends anything: what LaneIn writes stays in the rank's area, its
// GPU memory and its buffers.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "src/transport/lane_stream.h"

namespace weft {
namespace {

constexpr size_t kWords = 256, kArea = 4096, kBuffer = 700;

// Receives what the input says: messages of two bytes of length each.
class FuzzedNetwork final : public Network {
 public:
  FuzzedNetwork(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  const std::string& name() const override { return name_; }
  int version() const override { return 12; }
  int devices() const override { return 1; }
  NetProperties properties(int) override { return {}; }
  int merge(const std::vector<int>&) noexcept override { return -1; }
  ncclResult_t listen(int, NetHandle&, void**) noexcept override { return ncclSystemError; }
  ncclResult_t connect(int, NetHandle&, void**) noexcept override { return ncclSystemError; }
  void cancel(NetHandle&) noexcept override {}
  ncclResult_t accept(void*, void**) noexcept override { return ncclSystemError; }
  ncclResult_t close_send(void*) noexcept override { return ncclSuccess; }
  ncclResult_t close_receive(void*) noexcept override { return ncclSuccess; }
  ncclResult_t close_listen(void*) noexcept override { return ncclSuccess; }
  ncclResult_t reg(void*, void*, size_t, net_abi::PointerKind, void** r) noexcept override {
    *r = nullptr;
    return ncclSuccess;
  }
  ncclResult_t reg_dma_buf(void*, void*, size_t, uint64_t, int, void**) noexcept override {
    return ncclSystemError;
  }
  ncclResult_t dereg(void*, void*) noexcept override { return ncclSuccess; }
  ncclResult_t isend(void*, void*, size_t, void*, void**) noexcept override {
    return ncclSystemError;
  }
  // Receives complete in their order.
  ncclResult_t irecv(void*, void* to, size_t room, void*, void** request) noexcept override {
    posted_.push_back({to, room, ++requests_});
    *request = reinterpret_cast<void*>(requests_);
    return ncclSuccess;
  }
  ncclResult_t flush(void*, void* data, int size, void*, void** request) noexcept override {
    // What is flushed is read.
    for (int i = 0; i < size; i++) sum_ += static_cast<uint8_t*>(data)[i];
    *request = size % 2 == 0 ? nullptr : &sum_;
    return ncclSuccess;
  }
  ncclResult_t test(void* request, bool& done, size_t& size) noexcept override {
    done = true;
    if (request == &sum_) return ncclSuccess;
    done = reinterpret_cast<uintptr_t>(request) == posted_.front().request;
    if (!done) return ncclSuccess;
    if (size_ < 2) return ncclRemoteError;  // the input ends
    const auto [to, room, number] = posted_.front();
    posted_.erase(posted_.begin());
    size = std::min<size_t>({room, size_ - 2, static_cast<size_t>(data_[0] | data_[1] << 8)});
    std::memcpy(to, data_ + 2, size);
    data_ += 2 + size;
    size_ -= 2 + size;
    return ncclSuccess;
  }
  bool can_lend() const override { return false; }
  bool can_sleep() const override { return false; }
  bool can_seal() const override { return false; }
  void use_secret(const Secret*, Wire) noexcept override {}
  ncclResult_t isend_two(void*, void*, size_t, void*, size_t, void**) noexcept override {
    return ncclSystemError;
  }
  int waits_for(void*, pollfd*, int) noexcept override { return 0; }
  double round_trip_us(void*) noexcept override { return 0; }
  std::string reason() const override { return ""; }

 private:
  const uint8_t* data_;
  size_t size_;
  struct Posted {
    void* to;
    size_t room;
    uintptr_t request;
  };
  std::vector<Posted> posted_;
  uintptr_t requests_ = 0;
  uint64_t sum_ = 0;
  std::string name_ = "fuzzed";
};

}  // namespace
}  // namespace weft

// The first byte says what the rank has. An input names the buffer by an address of kNamed and
// more.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  if (size < 1) return 0;
  // Memory of its own for each, so that writes beside it are found. The buffer has one address in
  // all runs.
  const auto area_memory = std::make_unique<std::byte[]>(kArea);
  const auto gpu_memory = std::make_unique<std::byte[]>(kArea - kWords);
  static auto* const buffer = new std::byte[kBuffer];
  uint64_t sent = 0;
  LaneArea area{{area_memory.get(), kArea}, kWords, &sent, nullptr, {}};
  if ((data[0] & 1) != 0) area.gpu.memory = {gpu_memory.get(), kArea - kWords};
  area.gpu.needs_flush = (data[0] & 2) != 0;
  if ((data[0] & 4) != 0) area.gpu.buffers = std::make_shared<NicBuffers>();
  area.gpu.pointers = net_abi::kCudaPointer;
  // Places in the input count from the buffer's begin.
  std::vector<uint8_t> input(data + 1, data + size);
  constexpr uint64_t kNamed = uint64_t{0x5a5a5a5a} << 32;
  for (size_t at = 0; at + 8 <= input.size(); at++) {
    uint64_t place = 0;
    std::memcpy(&place, input.data() + at, 8);
    if (place >> 32 != kNamed >> 32) continue;
    place = reinterpret_cast<uint64_t>(buffer) + (place - kNamed);
    std::memcpy(input.data() + at, &place, 8);
    at += 7;
  }
  Doorbell door;
  alignas(64) static std::byte no_proxy[64];  // a stream only keeps it
  auto network = std::make_shared<FuzzedNetwork>(input.data(), input.size());
  LaneIn in(NetComm(network, &door, NetComm::Kind::kReceive), *reinterpret_cast<Proxy*>(no_proxy),
            area, door, nullptr);
  if (area.gpu.buffers != nullptr) area.gpu.buffers->put(buffer, kBuffer, {});
  while (in.progress(true)) {
  }
  if (!in.broken()) __builtin_trap();  // the input ends at some time
  return 0;
}
