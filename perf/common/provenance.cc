// See provenance.h.
#include "perf/common/provenance.h"

#include <cuda_runtime.h>

#include <ctime>
#include <fstream>
#include <stdexcept>

namespace weft::perf {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", gmtime_r(&now, &parts));
  return text;
}

std::string gpu() {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess)
    throw std::runtime_error(std::string("cudaGetDeviceProperties: ") + cudaGetErrorString(error));
  return properties.name;
}

std::string driver() {
  std::string text;
  std::getline(std::ifstream("/sys/module/nvidia/version"), text);
  return text;
}

std::string short_size(size_t bytes) {
  if (bytes < (1 << 10)) return std::to_string(bytes);
  return bytes < (1 << 20) ? std::to_string(bytes >> 10) + "K" : std::to_string(bytes >> 20) + "M";
}

}  // namespace weft::perf
