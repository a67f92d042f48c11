// What a row of perf/baselines says beside its value: when and where it was measured.
#pragma once

#include <cstddef>
#include <string>

namespace weft::perf {

std::string today();   // 2026-01-31
std::string gpu();     // the name of device 0
std::string driver();  // empty where the module does not say it
// 8K, 64M: as ids of baselines have it.
std::string short_size(size_t bytes);

}  // namespace weft::perf
