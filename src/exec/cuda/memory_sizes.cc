// See memory_sizes.h.
#include "src/exec/cuda/memory_sizes.h"

#include <algorithm>

#include "src/exec/cuda/block_share.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/lane_program.h"
#include "src/exec/cuda/signal_arguments.h"

namespace weft::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kUsualStage = 32 * kMiB;
// Of a rank whose peers are other processes. 4 of 64 MiB are left for programs and the driver's own
// rounding.
constexpr size_t kBetweenProcesses = 60 * kMiB;
constexpr int kLargeGpuBlocks = 128;  // that ranks of an H200 share

size_t whole_units(size_t bytes) { return (bytes + kMiB - 1) / kMiB * kMiB; }

}  // namespace

size_t lane_pool_bytes(size_t scratch_bytes, bool net_lanes) {
  if (scratch_bytes != 0) return whole_units(scratch_bytes);
  return net_lanes ? kUsualStage / 2 : kUsualStage;
}

MemorySizes memory_sizes(const GpuOptions& options) {
  MemorySizes sizes;
  // More blocks than a rank gets need no slots.
  const int blocks = std::min(kMaxCtas, std::max(kOwnGpuBlocks, kLargeGpuBlocks / options.nranks));
  // More ranks than kMaxRanks have lanes only.
  if (options.nranks <= kMaxRanks) {
    sizes.packet_ctas = static_cast<uint32_t>(std::clamp(256 / options.nranks, 8, blocks));
    sizes.words_at =
        mailbox_bytes(sizes.packet_ctas, static_cast<uint32_t>(kPacketChannels * options.nranks));
    sizes.words_at = (sizes.words_at + 255) / 256 * 256;
  }
  sizes.signals_at = (sizes.words_at + lane_words_bytes(options.nranks) + 255) / 256 * 256;
  sizes.mailbox = whole_units(sizes.signals_at + signal_bytes(options.nranks));
  const bool chosen = options.scratch_bytes == 0;
  const size_t usual = chosen ? kUsualStage : whole_units(options.scratch_bytes);
  sizes.stage = usual;
  sizes.copy_stage = options.copy_engines ? 2 * usual : 0;
  // Ranks of several hosts use FIFOs in host memory.
  if (options.one_process || !options.one_host) return sizes;
  // Between processes of a host most collectives of private buffers go through the stage. Large
  // slices pay off: an all_reduce of 64 MiB between four processes takes 402, 398, 387, 398 and
  // 363 us with 32, 48, 64, 80 and 96 MiB. Stages that fit into the L2 cache, and pipelines of
  // fill, work and empty, took 416 to 635 us.
  // Sends have a stage of their own. It holds messages, not slices.
  const size_t room = kBetweenProcesses - std::min(sizes.mailbox, kBetweenProcesses / 2);
  sizes.send_stage = chosen ? room / 3 / kMiB * kMiB : whole_units(usual / 2);
  if (chosen) sizes.stage = room - sizes.send_stage;
  return sizes;
}

}  // namespace weft::cuda
