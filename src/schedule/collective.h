// What a collective is: which chunks each rank starts with and which it must end with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/schedule/collective_kind.h"

namespace weft {

// "all_reduce", as the tools spell it.
std::string_view name(CollectiveKind kind);
// Kinds of equal blocks only.
std::optional<CollectiveKind> parse_collective(std::string_view text);

// The content of a chunk: piece `id` of the whole data, and the rank whose contribution it holds.
struct ChunkGoal {
  int32_t id = 0;
  int32_t contributor = 0;  // kEveryone: the reduction over all ranks
  static constexpr int32_t kEveryone = -1;
};

// One collective over `nranks` ranks. Buffers consist of blocks of `count` elements (the count of
// the API call). A block consists of `chunks` chunks. Chunk numbers run through all blocks of a
// buffer.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int nranks = 1;
  int root = 0;

  bool reduces() const {
    return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
           kind == CollectiveKind::kReduceScatter;
  }
  bool rooted() const {
    return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast ||
           kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
  }
  // Number of blocks in a rank's buffer; 0 if the rank has no such buffer. CPU nodes (numbers from
  // `nranks` on, see Schedule) have neither.
  int input_blocks(int rank) const;
  int output_blocks(int rank) const;
  // Blocks of the whole array, whose size nccl-tests prints: those of the largest buffer.
  int array_blocks() const;

  // The content of input chunk `index` of `rank` at the start, and of output chunk `index` at the
  // end.
  ChunkGoal start(int rank, int index, int chunks) const;
  ChunkGoal goal(int rank, int index, int chunks) const;

  // How the buffers of an in-place call overlap: the first input chunk is output chunk `input_at`,
  // or the first output chunk is input chunk `output_at`. The other number is zero.
  struct Overlap {
    int input_at = 0, output_at = 0;
  };
  Overlap overlap(int rank, int chunks) const;

  bool operator==(const Collective&) const = default;
};

}  // namespace weft
