// Builds without CUDA have host mode only.
#include <cstdlib>

#include "tests/support/device.h"

namespace weft::test {

bool on_gpu() { return false; }
void* shared_memory(size_t bytes) { return std::malloc(bytes); }
void free_shared_memory(void* pointer) { std::free(pointer); }
cudaStream_t stream_of(ncclComm_t) { return nullptr; }
const char* finish(ncclComm_t) { return ""; }

}  // namespace weft::test
