// Rates measured on this machine, as a file that `weft calibrate` writes and init reads:
//   weft rates 2
//   measured on box7, 2 cores, 2026-11-15
//   [threads]
//   call_us 1.25
//   ...
//   codec int8 120 60
// A codec has microseconds to encode and to decode a megabyte, on one core. These lines may stand
// in any section. Functions only; any thread may call.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/planner/cost_model.h"
#include "src/schedule/codec.h"
#include "src/simulator/simulator.h"

namespace weft {

// The names of sections, by what drives the ranks.
inline constexpr const char* kThreadRates = "threads";     // ranks are threads of one process
inline constexpr const char* kProcessRates = "processes";  // ranks are processes of one host
inline constexpr const char* kNetworkRates = "network";    // ranks are on several hosts
inline constexpr const char* kGpuRates = "gpu";            // GPUs drive ranks that share them
inline constexpr const char* kGpuProcessRates =
    "gpu_processes";                                         // ranks that share GPUs are processes
inline constexpr const char* kOwnGpuRates = "own_gpus";      // every rank has a GPU (gpu_rates.h)
inline constexpr const char* kHostFifoRates = "host_fifos";  // GPUs, through pinned host memory

struct Calibration {
  std::string measured;  // where and when, one line
  std::map<std::string, Rates> rates;
  std::map<Codec, CodecCost> codecs;
  std::map<std::string, PlanFactors> factors;  // lines "factor all_reduce ring 4 16384 1.2"
};

// The file with this host's rates; empty: none.
std::string rates_path(const Config& config);

// Throws Error, one line with file and line number.
Calibration parse_rates(const std::string& text, const std::string& where);
std::string write_rates(const Calibration& calibration);

// nullopt: there is no such file, or it cannot be used; then a log line says why.
std::optional<Calibration> load_rates(const Config& config);
// Concurrent readers see the old file or the new one. Throws Error.
void save_rates(const Config& config, const Calibration& calibration);

// The rates without measurements.
Rates default_rates(const std::string& section);

}  // namespace weft
