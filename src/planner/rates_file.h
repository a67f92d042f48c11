// Rates measured on this machine, as a file that `weft calibrate` writes and init reads:
//   weft rates 2
//   measured on box7, 2 cores, 2026-11-15
//   [threads]
//   call_us 1.25
//   ...
// Functions only; any thread may call.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/planner/cost_model.h"

namespace weft {

// What drives ranks: the name of a section.
inline constexpr const char* kThreadRates = "threads";       // ranks are threads of a process
inline constexpr const char* kProcessRates = "processes";    // of several processes of a host
inline constexpr const char* kNetworkRates = "network";      // of several hosts
inline constexpr const char* kGpuRates = "gpu";              // ranks are driven by GPUs
inline constexpr const char* kHostFifoRates = "host_fifos";  // which go through pinned host memory

struct Calibration {
  std::string measured;  // where and when, one line
  std::map<std::string, Rates> rates;
  std::map<std::string, PlanFactors> factors;  // lines "factor all_reduce ring 4 16384 1.2"
};

// Where this host's rates are kept; empty: nowhere.
std::string rates_path(const Config& config);

// Throws Error in one line with file and line.
Calibration parse_rates(const std::string& text, const std::string& where);
std::string write_rates(const Calibration& calibration);

// nullopt: there is no such file, or it cannot be used, which is a line in the log.
std::optional<Calibration> load_rates(const Config& config);
// Whoever reads meanwhile sees the old file or the new one. Throws Error.
void save_rates(const Config& config, const Calibration& calibration);

// Without measurements.
Rates default_rates(const std::string& section);

}  // namespace weft
