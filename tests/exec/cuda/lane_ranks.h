// What emulated ranks of the lane kernel have: memory, a program, and the shape of their calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "src/base/handles.h"
#include "src/exec/cuda/kernels/lane_kernel.cuh"
#include "src/exec/cuda/lane_geometry.h"
#include "src/transport/nic_buffers.h"

namespace weft::test {

using namespace cuda;  // NOLINT(google-build-using-namespace): it tests most of it

// Zeros, as aligned as device memory. Pages cost nothing until they are touched.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(size_t size) { resize(size); }
  void resize(size_t size) {  // what was there is gone
    memory_ = Mapping::anonymous(std::max<size_t>(size, 1));
    size_ = size;
  }
  void assign(const std::vector<std::byte>& bytes) {
    resize(bytes.size());
    std::copy(bytes.begin(), bytes.end(), data());
  }
  std::byte* data() const { return memory_.data(); }
  std::byte* begin() const { return data(); }
  std::byte* end() const { return data() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  Mapping memory_;
  size_t size_ = 0;
};

// A rank's memory for lanes, which all its programs use.
struct LaneHome {
  DeviceBytes memory;  // words, then the pool
  LaneCounters counters;
  HostFlags flags;
  uint64_t sent = 0;  // see lane_area_pool()
  DeviceBytes gpu;    // memory that NICs reach, in place of the pool and the outbox
  std::shared_ptr<NicBuffers> buffers;
  int slot = -1;  // of the last call's buffer
};

// A rank's memory and program.
struct LaneRank {
  LaneImage image;
  std::shared_ptr<LaneHome> home = std::make_shared<LaneHome>();
  std::vector<int32_t> buffer, before;  // input and output
  std::vector<float> losses;            // of the input, then of the output
  size_t output_at = 0;
  DeviceBytes lanes, resolved;
  std::vector<LanePort> producers;
  std::vector<LaneSize> sizes;
  std::vector<uint64_t> progress;
  LaneArguments arguments;
};

// What a thread block has.
struct LaneBlock {
  LaneArguments arguments;
  LaneShared shared;
  std::vector<LaneItem> items;
  std::vector<LaneWait> waits;
  DeviceBytes room;

  // By all threads, as lane_kernel() does.
  template <typename Type>
  void run(const LaneArguments& given, bool has_waits = true) {
    if (threadIdx.x == 0) {
      arguments = given;
      const uint32_t own = dealt_items(given.items, blockIdx.x, gridDim.x);
      items.assign(own, {});
      waits.assign(own, {});
      room.resize(own * (given.lane_bytes + given.resolved_bytes));
      arguments.block_items = items.data();
      arguments.block_item_count = own;
    }
    __syncthreads();
    LaneRunner<Type, Sum>(arguments, shared, items.data(), has_waits ? waits.data() : nullptr)
        .run(room.data());
  }
};

struct LaneCase {
  bool straight = true;
  uint64_t count = 1;
  bool packets = false;
  bool in_shared = true;
  int host = 0;           // ranks of a host; 0: all are on one
  bool gpu = false;       // NICs reach the memory of every other rank's GPU
  bool all_gpus = false;  // and of the others
  // 1: and the outputs there, 2: and the inputs there, 3: both
  int buffers = 0;
  bool feedback = false;
  bool gaps = true;           // between lanes in shared memory
  bool wide = false;          // packets: one instance, of many words
  bool some_private = false;  // peers do not reach the outputs of odd ranks
  bool eager = false;         // calls between hosts, if their messages fit
  uint32_t blocks = 1;        // of a rank, at most
  uint32_t warps = 0;         // of a block, two at least; each leads itself. 0: one leads another
  uint32_t threads() const { return (warps > 0 ? warps : 2) * kWarp; }
  LaneRoom room() const {
    LaneRoom room{4, 1 << 16, 2, 1 << 11, 256};
    room.least_packet_bytes = wide ? 1 << 20 : 64;
    room.packet_bytes = packets && (host == 0 || eager) ? 1 << 20 : 0;
    room.eager_bytes = eager ? kEagerBytes : 0;
    return room;
  }
  // The same whether calls are eager or not: teams share memory.
  static constexpr size_t kEagerBytes = 1 << 14;
  size_t pool_bytes() const { return room().pool_bytes + 2 * kEagerBytes; }
};

}  // namespace weft::test
