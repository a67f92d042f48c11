// The lanes that a block runs: it copies them, resolves their operands, and tells producers that
// they may send.
#pragma once

#include "src/exec/cuda/kernels/lane_places.cuh"
#include "src/exec/cuda/kernels/lane_posts.cuh"

namespace weft::cuda {

class LaneItems {
 public:
  __device__ LaneItems(const LaneArguments& a, LaneItem* items, LaneWait* waits)
      : a_(a), items_(items), waits_(waits), own_(dealt_items(a.items, blockIdx.x, gridDim.x)) {}

 protected:
  static __device__ bool leads() { return threadIdx.x < kWarp; }

  // All threads: the block's items. Their lanes are copied, if they fit, and resolved.
  __device__ void take_items(std::byte* room) {
    const uint32_t call = call_ = load_volatile(&a_.counters->call) + 1;
    if (blockIdx.x == 0 && threadIdx.x / kWarp == blockDim.x / kWarp - 1) grant_call();
    if (a_.in_shared) copy_lanes(room);
    for (uint32_t i = threadIdx.x; i < own_; i += blockDim.x) {
      const uint32_t number = dealt_item(i, blockIdx.x, gridDim.x);
      LaneItem& item = items_[i];
      const uint32_t row = number / a_.in_a_row, turn = row / a_.lane_count;
      item.instance = turn * a_.in_a_row + (number - row * a_.in_a_row);
      item.number = row - turn * a_.lane_count;
      const std::byte* at =
          a_.in_shared ? in_room(room, i) : a_.lanes + uint64_t{item.number} * a_.lane_bytes;
      std::byte* resolved = a_.in_shared ? const_cast<std::byte*>(at) + lane_bytes(i)
                                         : a_.resolved + uint64_t{number} * a_.resolved_bytes;
      item.lane = reinterpret_cast<const LaneHead*>(at);
      const LaneHead& head = *item.lane;
      const LaneData& d = head.own ? head.data : a_.data;
      item.ends = reinterpret_cast<LaneEnd*>(resolved);
      item.lengths = reinterpret_cast<LaneLength*>(item.ends + head.operands);
      item.at = reinterpret_cast<std::byte**>(item.lengths + head.steps);
      item.call = head.own ? load_volatile(head.counter + item.instance) + 1 : call;
      item.step = 0;
      item.iterations = d.iterations;
      item.iteration = head.steps == 0 || item.instance >= d.instances ? d.iterations : 0;
      item.granted = false;
      item.packets = head.own ? head.packets : a_.packets;
      item.arrives = item.iteration < item.iterations && LanePlaces(a_, item).only_arrives();
      if (waits_ != nullptr) waits_[i] = {};
    }
    __syncthreads();
    if (leads()) grant_messages();
    for (uint32_t i = 0; i < own_; i++)
      if (items_[i].iteration < items_[i].iterations && !items_[i].arrives)
        LanePlaces(a_, items_[i]).resolve(threadIdx.x, blockDim.x);
    __syncthreads();
  }

  // The lane of the block's item i.
  __device__ uint32_t lane_of(uint32_t i) const {
    return dealt_item(i, blockIdx.x, gridDim.x) / a_.in_a_row % a_.lane_count;
  }
  // Where it is copied to, and its bytes. If lanes lie without gaps, the item holds that until it
  // begins: see measure_lanes().
  __device__ std::byte* in_room(std::byte* room, uint32_t i) const {
    return room + (a_.sizes != nullptr ? items_[i].step : i * (a_.lane_bytes + a_.resolved_bytes));
  }
  __device__ uint32_t lane_bytes(uint32_t i) const {
    return a_.sizes != nullptr ? items_[i].iteration : a_.lane_bytes;
  }
  __device__ void measure_lanes() {
    for (uint32_t i = threadIdx.x; i < own_; i += blockDim.x) {
      const LaneSize size = a_.sizes[lane_of(i)];
      items_[i].iteration = size.lane;
      items_[i].iterations = size.lane + size.resolved;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < own_; i += blockDim.x) {
      uint32_t before = 0;
      for (uint32_t k = 0; k < i; k++) before += items_[k].iterations;
      items_[i].step = before;
    }
    __syncthreads();
  }
  __device__ void copy_lanes(std::byte* room) {
    if (a_.sizes != nullptr) measure_lanes();
    for (uint32_t i = 0; i < own_; i++) {
      const std::byte* from = a_.lanes + uint64_t{lane_of(i)} * a_.lane_bytes;
      std::byte* to = in_room(room, i);
      const uint32_t bytes = lane_bytes(i);
      for (uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
    }
    __syncthreads();
  }

  // Tells producers that they may send: this rank has left all earlier calls. The last warp of the
  // first block does it while the others fetch their lanes.
  __device__ void grant_call() {
    for (uint32_t p = threadIdx.x % kWarp; p < a_.producer_count; p += kWarp)
      grant(a_.producers[p], LanePlaces::grant(a_, a_.producers[p], call_), call_,
            LanePlaces::granted_place(a_.data, a_.producers[p]));
  }
  // The same for messages of send/recv, which count their own calls.
  __device__ void grant_messages() {
    for (uint32_t i = 0; i < own_; i++) {
      const LaneItem& item = items_[i];
      if (item.iteration == item.iterations) continue;
      left_++;
      const LaneHead& lane = *item.lane;
      if (!lane.own) continue;
      const LanePlaces places(a_, item);
      const auto* ports = lane.at<LanePort>(lane.receives_at);
      for (uint32_t r = threadIdx.x; r < lane.receives; r += kWarp)
        grant(ports[r], places.grant(ports[r]), item.call, places.granted_place(ports[r]));
    }
  }
  __device__ void grant(const LanePort& port, Packet* at, uint32_t call, uint64_t place) {
    if (port.post == nullptr)
      return store_packet(at, static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32),
                          call, call ^ a_.signature);
    LanePost post;
    post.word = static_cast<uint32_t>(reinterpret_cast<uint64_t>(at) - kRemote);
    post.kind = LanePost::kGrant;
    if (a_.packets && port.mutual) post.kind |= LanePost::kWaits;
    post.call = call;
    post.value = a_.signature;
    post.to = place;
    send_post(a_.watch, *port.post, post, port.peer);
  }

  const LaneArguments& a_;
  LaneItem* const items_;
  LaneWait* const waits_;  // nullptr: there is no room
  const uint32_t own_;
  uint32_t call_ = 0;
  uint32_t left_ = 0;  // items that are not finished; the leaders' only
};

}  // namespace weft::cuda
