// See virtual_memory.h.
#include "src/exec/cuda/virtual_memory.h"

#include <fmt/format.h>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/driver.h"
#include "src/exec/cuda/flat_window.h"
#include "src/exec/cuda/memory_driver.h"

namespace weft::cuda {
namespace {

// The driver functions used here.
struct Functions {
  decltype(cuPointerGetAttribute)* attribute =
      driver<decltype(cuPointerGetAttribute)>("cuPointerGetAttribute");
  decltype(cuMemGetAddressRange)* find =
      driver<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange");
  decltype(cuMemCreate)* create = driver<decltype(cuMemCreate)>("cuMemCreate");
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
  decltype(cuMemGetAllocationGranularity)* granularity =
      driver<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");

  static const Functions& get() {
    static const Functions functions;
    return functions;
  }
  bool complete() const {
    return find != nullptr && create != nullptr && retain != nullptr && to_descriptor != nullptr &&
           from_descriptor != nullptr && reserve != nullptr && unreserve != nullptr &&
           map != nullptr && unmap != nullptr && set_access != nullptr && release != nullptr;
  }
};

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

std::string failed(const char* what, CUresult result) {
  return fmt::format("{}: CUDA error {}", what, static_cast<int>(result));
}

bool give_access(uint64_t at, uint64_t size, int device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return Functions::get().set_access(at, size, &access, 1) == CUDA_SUCCESS;
}

// Maps it for one device and gives the handle back.
bool map_handle(CUmemGenericAllocationHandle handle, uint64_t at, uint64_t size, int device,
                std::string& why) {
  const Functions& f = Functions::get();
  const CUresult result = f.map(at, size, 0, handle, 0);
  f.release(handle);  // the mapping keeps the memory
  if (result != CUDA_SUCCESS) {
    why = failed("cuMemMap", result);
    return false;
  }
  if (give_access(at, size, device)) return true;
  why = "cuMemSetAccess failed";
  f.unmap(at, size);
  return false;
}

// The id of a new allocation that is mapped at `at` for a moment; 0: failed.
uint64_t id_of_new(uint64_t at, uint64_t size, int device) {
  const Functions& f = Functions::get();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  CUmemGenericAllocationHandle handle = 0;
  if (f.create(&handle, size, &properties, 0) != CUDA_SUCCESS) return 0;
  uint64_t id = 0;
  if (f.map(at, size, 0, handle, 0) == CUDA_SUCCESS) {
    if (give_access(at, size, device)) id = allocation_id(at);
    f.unmap(at, size);
  }
  f.release(handle);
  return id;
}

bool try_ids() {
  constexpr uint64_t kSize = 2 << 20;  // the granularity of all GPUs so far
  const OutsideCapture outside;
  int device = 0;
  if (!Functions::get().complete() || cudaGetDevice(&device) != cudaSuccess) return false;
  const uint64_t at = reserve_addresses(kSize);
  if (at == 0) return false;
  const uint64_t one = id_of_new(at, kSize, device), none = allocation_id(at),
                 two = id_of_new(at, kSize, device);
  free_addresses(at, kSize);
  return one != 0 && two != 0 && one != two && none != one;
}

}  // namespace

uint64_t allocation_id(uint64_t address) {
  const Functions& f = Functions::get();
  unsigned long long id = 0;
  if (f.attribute == nullptr ||
      f.attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) != CUDA_SUCCESS)
    return 0;
  return id;
}

bool has_ipc_handle(uint64_t address) {
  const Functions& f = Functions::get();
  unsigned long long has = 1;  // wide enough for whatever type the driver writes
  return f.attribute == nullptr ||
         f.attribute(&has, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) !=
             CUDA_SUCCESS ||
         has != 0;
}

bool ids_tell_mappings() {
  static const bool they_do = try_ids();
  return they_do;
}

bool find_allocation(uint64_t address, uint64_t& base, uint64_t& size) {
  const Functions& f = Functions::get();
  CUdeviceptr first = 0;
  size_t bytes = 0;
  if (f.find == nullptr || f.find(&first, &bytes, address) != CUDA_SUCCESS ||
      first + bytes <= address)
    return false;
  base = first;
  size = bytes;
  return true;
}

Fd export_allocation(uint64_t base, std::string& why) {
  const Functions& f = Functions::get();
  if (!f.complete()) {
    why = "the driver has no virtual memory management";
    return {};
  }
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = f.retain(&handle, reinterpret_cast<void*>(base));
  if (result != CUDA_SUCCESS) {
    why = failed("it has no handle (cuMemRetainAllocationHandle)", result);
    return {};
  }
  int fd = -1;
  result = f.to_descriptor(&fd, handle, kDescriptor, 0);
  f.release(handle);
  if (result == CUDA_SUCCESS) return Fd(fd);
  why = failed("it was not made to be exported as a file descriptor", result);
  return {};
}

bool can_share_mappings(int device) {
  static const auto attribute = driver<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  const Functions& f = Functions::get();
  if (!f.complete() || f.granularity == nullptr || attribute == nullptr) return false;
  for (const CUdevice_attribute needed :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int has = 0;
    if (attribute(&has, needed, device) != CUDA_SUCCESS || has == 0) return false;
  }
  return true;
}

namespace {

// Peers map allocations by regions, and one that lies in two regions stays private. Of two ranges
// at the same time only one can span the same border.
uint64_t reserve_in_one_region(uint64_t size) {
  const uint64_t at = reserve_addresses(size);
  if (at == 0 || at / kRegionBytes == (at + size - 1) / kRegionBytes) return at;
  const uint64_t other = reserve_addresses(size);
  if (other == 0) return at;
  free_addresses(at, size);
  return other;
}

}  // namespace

// NICs may access the memory, too, where the GPU allows it.
uint64_t map_new(uint64_t& size, int device, std::span<const int> devices, std::string& why) {
  static const auto attribute = driver<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  const Functions& f = Functions::get();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = kDescriptor;
  int rdma = 0;
  if (attribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) ==
          CUDA_SUCCESS &&
      rdma != 0)
    properties.allocFlags.gpuDirectRDMACapable = 1;
  size_t unit = 0;
  CUresult result = f.granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS || unit == 0) {
    why = failed("cuMemGetAllocationGranularity", result);
    return 0;
  }
  size = (size + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle = 0;
  result = f.create(&handle, size, &properties, 0);
  if (result != CUDA_SUCCESS) {
    why = failed("cuMemCreate", result);
    return 0;
  }
  const uint64_t at = reserve_in_one_region(size);
  if (at == 0) {
    f.release(handle);
    why = "no address range can be reserved";
    return 0;
  }
  bool mapped = map_handle(handle, at, size, device, why);
  for (const int other : devices) {
    if (!mapped || give_access(at, size, other)) continue;
    f.unmap(at, size);
    why = fmt::format("cuMemSetAccess for GPU {} failed", other);
    mapped = false;
  }
  if (mapped) return at;
  free_addresses(at, size);
  return 0;
}

uint64_t reserve_addresses(uint64_t bytes) {
  const Functions& f = Functions::get();
  CUdeviceptr base = 0;
  return f.complete() && f.reserve(&base, bytes, 0, 0, 0) == CUDA_SUCCESS ? base : 0;
}

void free_addresses(uint64_t base, uint64_t bytes) { Functions::get().unreserve(base, bytes); }

bool map_allocation(const Fd& descriptor, uint64_t at, uint64_t size, int device,
                    std::string& why) {
  const Functions& f = Functions::get();
  CUmemGenericAllocationHandle handle = 0;
  const auto fd = static_cast<uintptr_t>(descriptor.get());
  const CUresult result = f.from_descriptor(&handle, reinterpret_cast<void*>(fd), kDescriptor);
  if (result == CUDA_SUCCESS) return map_handle(handle, at, size, device, why);
  why = failed("cuMemImportFromShareableHandle", result);
  return false;
}

bool map_again(uint64_t base, uint64_t at, uint64_t size, int device, std::string& why) {
  const Functions& f = Functions::get();
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = f.retain(&handle, reinterpret_cast<void*>(base));
  if (result == CUDA_SUCCESS) return map_handle(handle, at, size, device, why);
  why = failed("cuMemRetainAllocationHandle", result);
  return false;
}

void unmap_allocation(uint64_t at, uint64_t size) { Functions::get().unmap(at, size); }

}  // namespace weft::cuda
