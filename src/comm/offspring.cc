// See offspring.h.
#include "src/comm/offspring.h"

#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/base/siphash.h"

namespace weft {

Child Offspring::make(const Secret& secret, const std::vector<int>& members) const {
  Child child;
  child.nranks = static_cast<int>(members.size());
  child.members = members;
  const auto it = std::find(members.begin(), members.end(), parent_.rank);
  if (it == members.end()) return child;
  child.rank = static_cast<int>(it - members.begin());
  // The first member's process holds the rendezvous.
  const PeerInfo& leader = mesh_.info(members.front());
  child.id.secret = secret;
  child.id.host = leader.host;
  child.id.address_count = static_cast<uint8_t>(leader.address_count);
  std::copy_n(leader.addresses, leader.address_count, child.id.addresses);
  if (child.rank == 0) {
    Rendezvous::open(secret);
    child.rendezvous = std::make_shared<HeldRendezvous>(secret);
  }
  return child;
}

std::vector<std::string> Offspring::gather(uint64_t round, const std::string& blob) {
  try {
    return control_.all_gather(round, blob, in_seconds(timeout_s_));
  } catch (const Error& error) {
    if (error.code() != ncclRemoteError || !faults_.known()) throw;
    const FaultState::Answer answer = faults_.settle();
    throw Error(answer.code, answer.text);
  }
}

Child Offspring::split(uint64_t round, int color, int key) {
  struct Wish {
    int color, key;
  } mine{color, key};
  const std::vector<std::string> blobs =
      gather(round, std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  std::vector<std::pair<int, int>> order;  // key, rank
  for (int r = 0; r < parent_.nranks; r++) {
    Wish wish{};
    if (blobs[static_cast<size_t>(r)].size() != sizeof wish)
      fail(ncclInvalidUsage, "rank {} made another call than ncclCommSplit", r);
    std::memcpy(&wish, blobs[static_cast<size_t>(r)].data(), sizeof wish);
    if (wish.color == color && color != NCCL_SPLIT_NOCOLOR) order.emplace_back(wish.key, r);
  }
  std::stable_sort(order.begin(), order.end());
  std::vector<int> members;
  for (const auto& [k, r] : order) members.push_back(r);
  return make(derive(derive(parent_.id.secret, "split", round), "color",
                     static_cast<uint64_t>(static_cast<uint32_t>(color))),
              members);
}

Child Offspring::grow(uint64_t round, const std::optional<UniqueId>& id, int nranks) {
  struct Wish {
    int32_t nranks = 0, has_id = 0;
    UniqueId id;
  } mine;
  mine.nranks = nranks;
  if (id) {
    mine.has_id = 1;
    mine.id = *id;
  }
  const std::vector<std::string> blobs =
      gather(round, std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  Child child;
  child.rank = parent_.rank;
  child.nranks = nranks;
  for (int r = 0; r < parent_.nranks; r++) child.members.push_back(r);
  int root = -1;
  for (int r = 0; r < parent_.nranks; r++) {
    Wish wish;
    if (blobs[static_cast<size_t>(r)].size() != sizeof wish)
      fail(ncclInvalidUsage, "rank {} made another call than ncclCommGrow", r);
    std::memcpy(static_cast<void*>(&wish), blobs[static_cast<size_t>(r)].data(), sizeof wish);
    if (wish.nranks != nranks)
      fail(ncclInvalidUsage, "nRanks is {} on rank {} and {} on rank {}", nranks, parent_.rank,
           wish.nranks, r);
    if (wish.has_id == 0) continue;
    if (root >= 0)
      fail(ncclInvalidUsage, "ranks {} and {} both pass a uniqueId: one existing rank does", root,
           r);
    root = r;
    child.id = wish.id;
  }
  if (root < 0)
    fail(ncclInvalidUsage,
         "no rank passes a uniqueId: the rank that called ncclCommGetUniqueId does");
  return child;
}

Child Offspring::successor(uint64_t round, bool has_graphs) {
  static const std::string kSuspends = "suspend", kHasGraphs = "graphs";
  std::vector<int> all;
  for (int r = 0; r < parent_.nranks; r++) all.push_back(r);
  // Rank 0 opens the rendezvous before anyone can look for it.
  const Child child = make(derive(parent_.id.secret, "resume", round), all);
  const std::vector<std::string> blobs = gather(round, has_graphs ? kHasGraphs : kSuspends);
  for (int r = 0; r < parent_.nranks; r++) {
    const std::string& said = blobs[static_cast<size_t>(r)];
    if (said == kSuspends) continue;
    if (said == kHasGraphs)
      fail(ncclInvalidUsage,
           "CUDA graphs have captured calls of rank {}, and would use memory that is gone. With "
           "WEFT_COUNT_GRAPHS=1 you can destroy them first, and capture again after ncclCommResume",
           r);
    fail(ncclInvalidUsage, "rank {} made another call than ncclCommSuspend", r);
  }
  return child;
}

Child Offspring::shrink(const std::vector<int>& excluded) {
  std::vector<int> members;
  uint64_t hash = 0;
  for (int r = 0; r < parent_.nranks; r++) {
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) {
      members.push_back(r);
    } else {
      const uint64_t parts[2] = {hash, static_cast<uint64_t>(r)};
      hash = siphash(Secret{}, parts, sizeof parts);
    }
  }
  const uint64_t number = shrinks_[hash]++;
  return make(derive(derive(parent_.id.secret, "shrink", number), "excluded", hash), members);
}

}  // namespace weft
