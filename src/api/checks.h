// Argument checks. Each throws Error(ncclInvalidArgument). `name` is the argument's name in nccl.h.
#pragma once

#include <cstddef>
#include <cstring>

#include "include/nccl.h"
#include "src/base/error.h"
#include "src/comm/handle.h"

namespace weft::api {

inline void check_pointer(const char* name, const void* pointer) {
  if (pointer == nullptr) fail(ncclInvalidArgument, "{} is NULL", name);
}

inline void check_type(ncclDataType_t type, const char* name = "datatype") {
  if (static_cast<int>(type) < 0 || type >= ncclNumTypes)
    fail(ncclInvalidArgument, "{} is {}, there are {} types", name, static_cast<int>(type),
         static_cast<int>(ncclNumTypes));
}

inline void check_rank(const char* name, int rank, const ncclComm& comm) {
  if (rank < 0 || rank >= comm.nranks)
    fail(ncclInvalidArgument, "{} is {}, the communicator has {} ranks", name, rank, comm.nranks);
}

// `blocks` buffers of `count` elements must be addressable.
inline void check_count(const char* name, size_t count, ncclDataType_t type, int blocks) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_size(type), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<size_t>(blocks), &bytes) || bytes > SIZE_MAX / 2)
    fail(ncclInvalidArgument, "{} is {}: that many elements do not fit in memory", name, count);
}

// The communicator is up. It may be suspended, finalized or revoked.
inline void check_up(ncclComm& comm) {
  const CommState state = comm.state.load();
  if (state == CommState::kSuspending || state == CommState::kSuspended) return;
  const Use use(comm, false);
}

inline UniqueId read_id(const char* name, const ncclUniqueId& raw) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), &raw, sizeof id);
  if (!id.is_sane()) fail(ncclInvalidArgument, "{} was not made by this library", name);
  return id;
}

inline void check_size(int nranks, int rank, const char* rank_name) {
  if (nranks < 1) fail(ncclInvalidArgument, "nranks is {}", nranks);
  if (rank < 0 || rank >= nranks)
    fail(ncclInvalidArgument, "{} is {}, it must be in 0..{}", rank_name, rank, nranks - 1);
}

// The Reduction of a built-in operator, or of an operator made on this communicator.
Reduction reduction_of(ncclComm& comm, ncclRedOp_t op, ncclDataType_t type);

}  // namespace weft::api
