// See virtual_memory.h. Looks the driver's functions up at run time, so nothing links to libcuda.
#include "tests/gpu/support/virtual_memory.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tests/gpu/support/gpu.h"

namespace weft::test {
namespace {

template <typename Function>
Function* driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  WEFT_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
  if (found == nullptr || status != cudaDriverEntryPointSuccess)
    throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(found);
}

void driver_ok(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(what) + ": CUresult " + std::to_string(result));
}

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

VirtualMemory::VirtualMemory(size_t bytes, bool shareable) {
  WEFT_CUDA(cudaFree(nullptr));  // makes the context
  int device = 0;
  WEFT_CUDA(cudaGetDevice(&device));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t unit = 0;
  driver_ok(driver<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
                &unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            "cuMemGetAllocationGranularity");
  reserved_ = round_up(bytes, unit);
  driver_ok(
      driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&base_, reserved_, unit, 0, 0),
      "cuMemAddressReserve");
  // Each allocation is larger than the one before, so that buffers cross their borders.
  size_t piece = unit;
  for (size_t at = 0; at < reserved_; at += pieces_.back().bytes, piece += 2 * unit) {
    const size_t size = std::min(piece, reserved_ - at);
    CUmemGenericAllocationHandle handle = 0;
    driver_ok(driver<decltype(cuMemCreate)>("cuMemCreate")(&handle, size, &properties, 0),
              "cuMemCreate");
    pieces_.push_back({handle, at, size});
    driver_ok(driver<decltype(cuMemMap)>("cuMemMap")(base_ + at, size, 0, handle, 0), "cuMemMap");
  }
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  driver_ok(driver<decltype(cuMemSetAccess)>("cuMemSetAccess")(base_, reserved_, &access, 1),
            "cuMemSetAccess");
}

VirtualMemory::~VirtualMemory() {
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const Piece& piece : pieces_) {
    EXPECT_EQ(driver<decltype(cuMemUnmap)>("cuMemUnmap")(base_ + piece.at, piece.bytes),
              CUDA_SUCCESS);
    EXPECT_EQ(driver<decltype(cuMemRelease)>("cuMemRelease")(piece.handle), CUDA_SUCCESS);
  }
  if (base_ != 0) {
    EXPECT_EQ(driver<decltype(cuMemAddressFree)>("cuMemAddressFree")(base_, reserved_),
              CUDA_SUCCESS);
  }
}

}  // namespace weft::test
