// See arena.h.
#include "tests/gpu/support/arena.h"

#include <stdexcept>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/virtual_memory.h"
#include "tests/support/threads.h"

namespace weft::test {

class Arena::Mapping : public VirtualMemory {
  using VirtualMemory::VirtualMemory;
};

const std::vector<Origin>& all_origins() {
  static const std::vector<Origin> all = {
      Origin::kCudaMalloc, Origin::kNcclMemAlloc,   Origin::kRegistered,       Origin::kWindow,
      Origin::kVirtual,    Origin::kVirtualPrivate, Origin::kVirtualRegistered};
  return all;
}

const char* name_of(Origin origin) {
  static const char* const names[] = {"cudaMalloc", "ncclMemAlloc",   "registered",       "window",
                                      "virtual",    "virtualPrivate", "virtualRegistered"};
  return names[static_cast<int>(origin)];
}

Arena::Arena(size_t bytes, Origin origin, ncclComm_t comm)
    : size_(bytes), origin_(origin), comm_(comm) {
  void* memory = nullptr;
  switch (origin) {
    case Origin::kCudaMalloc:
    case Origin::kRegistered:
      WEFT_CUDA(cudaMalloc(&memory, bytes));
      break;
    case Origin::kNcclMemAlloc:
    case Origin::kWindow:
      if (!succeeded(ncclMemAlloc(&memory, bytes), "ncclMemAlloc"))
        throw std::runtime_error("no memory");
      break;
    default:
      mapping_ = std::make_unique<Mapping>(bytes, origin != Origin::kVirtualPrivate);
      memory = mapping_->data();
  }
  base_ = static_cast<char*>(memory);
  ncclResult_t result = ncclSuccess;
  if (origin == Origin::kRegistered || origin == Origin::kVirtualRegistered)
    result = ncclCommRegister(comm_, base_, size_, &registration_);
  if (origin == Origin::kWindow)
    result = ncclCommWindowRegister(comm_, base_, size_, &window_, NCCL_WIN_COLL_SYMMETRIC);
  if (!succeeded(result, "registering memory")) throw std::runtime_error("registering failed");
}

Arena::~Arena() {
  if (registration_ != nullptr) {
    WEFT_OK(ncclCommDeregister(comm_, registration_));
  }
  if (window_ != nullptr) {
    WEFT_OK(ncclCommWindowDeregister(comm_, window_));
  }
  if (origin_ == Origin::kCudaMalloc || origin_ == Origin::kRegistered) {
    EXPECT_EQ(cudaFree(base_), cudaSuccess);
  }
  if (origin_ == Origin::kNcclMemAlloc || origin_ == Origin::kWindow) {
    WEFT_OK(ncclMemFree(base_));
  }
}

char* Arena::take(size_t bytes) {
  const size_t rounded = (bytes + 255) / 256 * 256;
  if (rounded > size_ - used_)
    throw std::runtime_error("the arena of " + std::to_string(size_) + " bytes is used up");
  char* piece = base_ + used_;
  used_ += rounded;
  return piece;
}

}  // namespace weft::test
