// Pre- and postconditions of every collective.
#include "src/schedule/collective.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

constexpr std::array<std::string_view, kNamedKinds> kNames = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
    "alltoall",   "gather", "scatter",   "sendrecv",   "alltoallv"};

}  // namespace

std::string_view name(CollectiveKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<CollectiveKind> parse_collective(std::string_view text) {
  for (size_t i = 0; i < kCollectiveKinds; i++)
    if (kNames[i] == text) return static_cast<CollectiveKind>(i);
  return std::nullopt;
}

int Collective::input_blocks(int rank) const {
  if (rank >= nranks) return 0;
  switch (kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kAllToAllV:
      return nranks;
    case CollectiveKind::kBroadcast:
      return rank == root ? 1 : 0;
    case CollectiveKind::kScatter:
      return rank == root ? nranks : 0;
    case CollectiveKind::kSendRecv:
      return rank == 0 ? 1 : 0;
    default:
      return 1;
  }
}

int Collective::output_blocks(int rank) const {
  if (rank >= nranks) return 0;
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kAllToAllV:
      return nranks;
    case CollectiveKind::kReduce:
      return rank == root ? 1 : 0;
    case CollectiveKind::kGather:
      return rank == root ? nranks : 0;
    case CollectiveKind::kSendRecv:
      return rank == 1 ? 1 : 0;
    default:
      return 1;
  }
}

int Collective::array_blocks() const { return std::max(input_blocks(root), output_blocks(root)); }

ChunkGoal Collective::start(int rank, int index, int chunks) const {
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return {rank * chunks + index, rank};
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kAllToAllV:
      return {rank * nranks * chunks + index, rank};
    default:
      return {index, rank};
  }
}

ChunkGoal Collective::goal(int rank, int index, int chunks) const {
  const int block = index / chunks, sub = index % chunks;
  switch (kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
      return {index, ChunkGoal::kEveryone};
    case CollectiveKind::kReduceScatter:
      return {rank * chunks + index, ChunkGoal::kEveryone};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return {index, block};
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kAllToAllV:
      return {(block * nranks + rank) * chunks + sub, block};
    case CollectiveKind::kScatter:
      return {rank * chunks + index, root};
    case CollectiveKind::kSendRecv:
      return {index, 0};
    case CollectiveKind::kBroadcast:
      return {index, root};
  }
  return {};
}

Collective::Overlap Collective::overlap(int rank, int chunks) const {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return {rank * chunks, 0};
    case CollectiveKind::kGather:
      return {rank == root ? rank * chunks : 0, 0};
    case CollectiveKind::kReduceScatter:
      return {0, rank * chunks};
    case CollectiveKind::kScatter:
      return {0, rank == root ? rank * chunks : 0};
    default:
      return {};
  }
}

}  // namespace weft
