// The content of an ncclUniqueId: the addresses of the rendezvous, and the secret to join it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/siphash.h"
#include "src/transport/address.h"

namespace weft {

struct UniqueId {
  static constexpr uint32_t kMagic = 0x74666577;
  static constexpr size_t kMostAddresses = 4;

  uint32_t magic = kMagic;
  uint16_t version = 1;
  uint8_t address_count = 0;
  uint8_t fixed = 0;  // 1: NCCL_COMM_ID, rank 0 opens the rendezvous
  Secret secret{};
  uint64_t host = 0;
  Address addresses[kMostAddresses];

  // Opens a rendezvous in this process, unless NCCL_COMM_ID names one.
  static UniqueId create();
  // False: the bytes are no id of this library.
  bool is_sane() const {
    return magic == kMagic && version == 1 && address_count <= kMostAddresses;
  }
  // The addresses at which this process can try to reach the rendezvous, best first.
  std::vector<Address> candidates(uint64_t my_host) const;
};
static_assert(sizeof(UniqueId) == 128);

// The rendezvous at which a rank joins, if it is not that of the communicator's id.
struct Branch {
  UniqueId id;
  int place = 0;  // among the ids; 0: the rank joins at the communicator's
  int ranks = 0;  // that join here
};
// Of a rank when the communicator has several ids, of which the first is its own.
Branch branch_of(std::span<const UniqueId> ids, int rank, int nranks);

}  // namespace weft
