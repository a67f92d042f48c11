// The copy bandwidth of a GPU, which other rates are compared with.
#pragma once

#include <cstddef>

namespace weft::perf {

// Bandwidth of a copy of so many bytes within the memory of the current device, read and write, the
// best of ten. In GB/s. Throws std::runtime_error.
double copy_gbps(size_t bytes);

}  // namespace weft::perf
