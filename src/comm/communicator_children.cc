// Communicators made from others: split and shrink.
#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/base/siphash.h"
#include "src/comm/communicator.h"
#include "src/comm/rendezvous.h"

namespace weft {

Communicator::Child Communicator::make_child(const Secret& secret,
                                             const std::vector<int>& members) const {
  Child child;
  child.nranks = static_cast<int>(members.size());
  const auto it = std::find(members.begin(), members.end(), options_.rank);
  if (it == members.end()) return child;
  child.rank = static_cast<int>(it - members.begin());
  // The first member's process holds the rendezvous.
  const PeerInfo& leader = mesh_->info(members.front());
  child.opens_rendezvous = child.rank == 0;
  child.id.secret = secret;
  child.id.host = leader.host;
  child.id.address_count = static_cast<uint8_t>(leader.address_count);
  std::copy_n(leader.addresses, leader.address_count, child.id.addresses);
  if (child.opens_rendezvous) Rendezvous::open(secret);
  return child;
}

uint64_t Communicator::reserve_split() { return control_->reserve(); }

Communicator::Child Communicator::split(uint64_t round, int color, int key) {
  struct Wish {
    int color, key;
  } mine{color, key};
  const std::string blob(reinterpret_cast<const char*>(&mine), sizeof mine);
  std::vector<std::string> blobs;
  try {
    blobs = control_->all_gather(round, blob, in_seconds(config_.init_timeout_s));
  } catch (const Error& error) {
    if (error.code() != ncclRemoteError || !vigil_.faults.known()) throw;
    const FaultState::Answer answer = vigil_.faults.settle();
    throw Error(answer.code, answer.text);
  }
  std::vector<std::pair<int, int>> order;  // key, rank
  for (int r = 0; r < options_.nranks; r++) {
    Wish wish{};
    if (blobs[static_cast<size_t>(r)].size() != sizeof wish)
      fail(ncclInvalidUsage, "rank {} made another call than ncclCommSplit", r);
    std::memcpy(&wish, blobs[static_cast<size_t>(r)].data(), sizeof wish);
    if (wish.color == color && color != NCCL_SPLIT_NOCOLOR) order.emplace_back(wish.key, r);
  }
  std::stable_sort(order.begin(), order.end());
  std::vector<int> members;
  for (const auto& [k, r] : order) members.push_back(r);
  return make_child(derive(derive(options_.id.secret, "split", round), "color",
                           static_cast<uint64_t>(static_cast<uint32_t>(color))),
                    members);
}

Communicator::Child Communicator::shrink(const std::vector<int>& excluded) {
  std::vector<int> members;
  uint64_t hash = 0;
  for (int r = 0; r < options_.nranks; r++) {
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) {
      members.push_back(r);
    } else {
      const uint64_t parts[2] = {hash, static_cast<uint64_t>(r)};
      hash = siphash(Secret{}, parts, sizeof parts);
    }
  }
  const uint64_t number = shrinks_[hash]++;
  return make_child(derive(derive(options_.id.secret, "shrink", number), "excluded", hash),
                    members);
}

}  // namespace weft
