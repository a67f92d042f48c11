// See virtual_memory.h.
#include "src/exec/cuda/virtual_memory.h"

#include <fmt/format.h>

#include "src/exec/cuda/driver.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostPieces = 1024;  // 20 GiB in PyTorch's segments

// The driver functions used here.
struct Functions {
  decltype(cuMemGetAddressRange)* find =
      driver<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange");
  decltype(cuMemRetainAllocationHandle)* retain =
      driver<decltype(cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
  decltype(cuMemExportToShareableHandle)* to_descriptor =
      driver<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  decltype(cuMemImportFromShareableHandle)* from_descriptor =
      driver<decltype(cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
  decltype(cuMemAddressReserve)* reserve =
      driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(cuMemAddressFree)* unreserve = driver<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(cuMemMap)* map = driver<decltype(cuMemMap)>("cuMemMap");
  decltype(cuMemUnmap)* unmap = driver<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(cuMemSetAccess)* set_access = driver<decltype(cuMemSetAccess)>("cuMemSetAccess");
  decltype(cuMemRelease)* release = driver<decltype(cuMemRelease)>("cuMemRelease");

  static const Functions& get() {
    static const Functions functions;
    return functions;
  }
  bool complete() const {
    return find != nullptr && retain != nullptr && to_descriptor != nullptr &&
           from_descriptor != nullptr && reserve != nullptr && unreserve != nullptr &&
           map != nullptr && unmap != nullptr && set_access != nullptr && release != nullptr;
  }
};

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

std::string failed(const char* what, CUresult result) {
  return fmt::format("{}: CUDA error {}", what, static_cast<int>(result));
}

}  // namespace

bool find_range(const void* pointer, size_t size, MemoryRange& range) {
  const Functions& f = Functions::get();
  range = {};
  if (f.find == nullptr) return false;
  const auto first = reinterpret_cast<uint64_t>(pointer), end = first + size;
  for (uint64_t at = first; at < end;) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (f.find(&base, &bytes, at) != CUDA_SUCCESS || base + bytes <= at) return false;
    if (range.pieces.empty()) range.base = base;
    if (range.pieces.size() == kMostPieces || base != range.base + range.size) return false;
    range.pieces.push_back(bytes);
    range.size += bytes;
    at = base + bytes;
  }
  return !range.pieces.empty();
}

std::vector<Descriptors::Lent> export_range(const MemoryRange& range, std::string& why) {
  const Functions& f = Functions::get();
  std::vector<Descriptors::Lent> all;
  if (!f.complete()) {
    why = "the driver has no virtual memory management";
    return all;
  }
  uint64_t at = range.base;
  for (const uint64_t bytes : range.pieces) {
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = f.retain(&handle, reinterpret_cast<void*>(at));
    if (result != CUDA_SUCCESS) {
      why = failed("it has no handle (cuMemRetainAllocationHandle)", result);
      return {};
    }
    int fd = -1;
    result = f.to_descriptor(&fd, handle, kDescriptor, 0);
    f.release(handle);
    if (result != CUDA_SUCCESS) {
      why = failed("it was not made to be exported as a file descriptor", result);
      return {};
    }
    all.push_back({Fd(fd), bytes});
    at += bytes;
  }
  return all;
}

std::string ImportedRange::add(const Descriptors::Lent& piece) {
  const Functions& f = Functions::get();
  CUmemGenericAllocationHandle handle = 0;
  const auto fd = static_cast<uintptr_t>(piece.fd.get());
  CUresult result = f.from_descriptor(&handle, reinterpret_cast<void*>(fd), kDescriptor);
  if (result != CUDA_SUCCESS) return failed("cuMemImportFromShareableHandle", result);
  uint64_t at = base_;
  for (const uint64_t before : mapped_) at += before;
  result = f.map(at, piece.size, 0, handle, 0);
  f.release(handle);  // the mapping keeps the memory
  if (result != CUDA_SUCCESS) return failed("cuMemMap", result);
  mapped_.push_back(piece.size);
  return {};
}

std::unique_ptr<ImportedRange> ImportedRange::map(const std::vector<Descriptors::Lent>& pieces,
                                                  int device, std::string& why) {
  const Functions& f = Functions::get();
  if (!f.complete()) {
    why = "the driver has no virtual memory management";
    return nullptr;
  }
  uint64_t size = 0;
  for (const Descriptors::Lent& piece : pieces) size += piece.size;
  auto range = std::make_unique<ImportedRange>(Private{});
  CUdeviceptr base = 0;
  if (const CUresult result = f.reserve(&base, size, 0, 0, 0); result != CUDA_SUCCESS) {
    why = failed("cuMemAddressReserve", result);
    return nullptr;
  }
  range->base_ = base;
  range->reserved_ = size;
  for (const Descriptors::Lent& piece : pieces)
    if (why = range->add(piece); !why.empty()) return nullptr;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (const CUresult result = f.set_access(base, size, &access, 1); result != CUDA_SUCCESS) {
    why = failed("cuMemSetAccess", result);
    return nullptr;
  }
  return range;
}

ImportedRange::~ImportedRange() {
  const Functions& f = Functions::get();
  uint64_t at = base_;
  for (const uint64_t size : mapped_) {
    f.unmap(at, size);
    at += size;
  }
  if (reserved_ > 0) f.unreserve(base_, reserved_);
}

}  // namespace weft::cuda
