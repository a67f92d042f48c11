// Memory from cuMemCreate and cuMemMap (PyTorch's expandable segments). Other processes access it
// through one descriptor per allocation. Many allocations may back an address range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/base/handles.h"

namespace weft::cuda {

// The id of the allocation at an address. CUDA never gives the same id to two allocations of a
// process. 0: there is no allocation.
uint64_t allocation_id(uint64_t address);
bool find_allocation(uint64_t address, uint64_t& base, uint64_t& size);
// False if CUDA says so: then asking for a handle would be an error.
bool has_ipc_handle(uint64_t address);
// Whether ids also tell apart allocations that are mapped at the same address one after the other.
// Tries it on the current device, once.
bool ids_tell_mappings();

// A descriptor for the allocation at `base`. Empty, with the reason in `why`, if it has none.
Fd export_allocation(uint64_t base, std::string& why);

// A new allocation that can be exported, mapped for `device` and for the other `devices`. Rounds
// `size` up. 0, with the reason in `why`, if that fails. Needs can_share_mappings().
uint64_t map_new(uint64_t& size, int device, std::span<const int> devices, std::string& why);

// Addresses for other processes' allocations. 0: failed.
uint64_t reserve_addresses(uint64_t bytes);
void free_addresses(uint64_t base, uint64_t bytes);
// Maps what a descriptor stands for. False, with the reason in `why`, if that fails.
bool map_allocation(const Fd& descriptor, uint64_t at, uint64_t size, int device, std::string& why);
// Maps an allocation of this process a second time.
bool map_again(uint64_t base, uint64_t at, uint64_t size, int device, std::string& why);
void unmap_allocation(uint64_t at, uint64_t size);

}  // namespace weft::cuda
