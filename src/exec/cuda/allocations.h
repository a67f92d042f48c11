// Memory from ncclMemAlloc, see gpu_executor.h.
#pragma once

#include <cstdint>

namespace weft::cuda {

bool is_from_mem_alloc(uint64_t address);

}  // namespace weft::cuda
