// See rates_file.h.
#include "src/planner/rates_file.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/planner/cached_file.h"

namespace weft {
namespace {

// The version of the format. Files of other versions are not used, because their rates mean
// something else.
constexpr std::string_view kTitle = "weft rates ", kVersion = "3";

void read_rate(const std::string& line, Rates& rates, const std::string& where, int number) {
  const size_t blank = line.find(' ');
  const std::string name = line.substr(0, blank);
  for (const RateName& known : kRateNames) {
    if (known.name != name || blank == std::string::npos) continue;
    double& value = rates.*known.rate;
    const char* end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(line.data() + blank + 1, end, value);
    if (error != std::errc() || rest != end || !std::isfinite(value) || value < 0)
      fail(ncclInvalidUsage, "{}:{}: '{}' is no rate", where, number, line.substr(blank + 1));
    return;
  }
  fail(ncclInvalidUsage, "{}:{}: '{}' is not known", where, number, name.substr(0, 80));
}

constexpr std::string_view kFactor = "factor ";

// "factor all_reduce ring 4 16384 1.2": at 4 ranks and 16384 bytes.
void read_factor(const std::string& line, PlanFactors& factors, const std::string& where,
                 int number) {
  std::istringstream fields(line.substr(kFactor.size()));
  std::string collective, plan, rest;
  FactorPoint point;
  const bool read =
      static_cast<bool>(fields >> collective >> plan >> point.ranks >> point.bytes >> point.factor);
  if (!read || fields >> rest || point.ranks < 1 || !(point.bytes >= 1 && point.bytes < 1e18) ||
      !(point.factor > 0.01 && point.factor < 100))
    fail(ncclInvalidUsage, "{}:{}: this is no factor", where, number);
  factors[fmt::format("{} {}", collective, plan)].push_back(point);
}

constexpr std::string_view kCodecLine = "codec ";

// "codec int8 120 60": microseconds to encode and to decode a megabyte.
void read_codec(const std::string& line, std::map<Codec, CodecCost>& codecs,
                const std::string& where, int number) {
  std::istringstream fields(line.substr(kCodecLine.size()));
  std::string codec, rest;
  CodecCost cost;
  const bool read = static_cast<bool>(fields >> codec >> cost.encode_us_mb >> cost.decode_us_mb);
  const auto kind = parse_codec(codec);
  const auto is_rate = [](double us) { return us >= 0 && us < 1e9; };
  if (!read || fields >> rest || !kind || !is_rate(cost.encode_us_mb) ||
      !is_rate(cost.decode_us_mb))
    fail(ncclInvalidUsage, "{}:{}: these are no rates of a codec", where, number);
  codecs[*kind] = cost;
}

}  // namespace

std::string rates_path(const Config& config) {
  if (config.cache.empty()) return "";
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return fmt::format("{}/rates-{}", config.cache, name.data());
}

Calibration parse_rates(const std::string& text, const std::string& where) {
  std::istringstream lines(text);
  std::string line;
  Calibration calibration;
  Rates* section = nullptr;
  PlanFactors* factors = nullptr;
  for (int number = 1; std::getline(lines, line); number++) {
    if (number == 1) {
      if (!line.starts_with(kTitle))
        fail(ncclInvalidUsage, "{}:1: these are no rates of Weft", where);
      if (line.substr(kTitle.size()) != kVersion)
        fail(ncclInvalidUsage, "{}:1: rates of version {}, this library reads version {}", where,
             line.substr(kTitle.size(), 20), kVersion);
    } else if (number == 2) {
      calibration.measured = line;
    } else if (line.size() > 2 && line.front() == '[' && line.back() == ']') {
      const std::string name = line.substr(1, line.size() - 2);
      factors = &calibration.factors[name];
      section = &calibration.rates.try_emplace(name, default_rates(name)).first->second;
    } else if (!line.empty()) {
      if (section == nullptr) fail(ncclInvalidUsage, "{}:{}: a rate of nothing", where, number);
      if (line.starts_with(kCodecLine)) {
        read_codec(line, calibration.codecs, where, number);
      } else if (line.starts_with(kFactor)) {
        read_factor(line, *factors, where, number);
      } else {
        read_rate(line, *section, where, number);
      }
    }
  }
  if (calibration.rates.empty()) fail(ncclInvalidUsage, "{}: holds no rates", where);
  return calibration;
}

std::string write_rates(const Calibration& calibration) {
  std::string text = fmt::format("{}{}\n{}\n", kTitle, kVersion, calibration.measured);
  for (const auto& [name, rates] : calibration.rates) {
    text += fmt::format("[{}]\n", name);
    for (const RateName& rate : kRateNames)
      text += fmt::format("{} {:.6g}\n", rate.name, rates.*rate.rate);
    if (const auto it = calibration.factors.find(name); it != calibration.factors.end())
      for (const auto& [plan, points] : it->second)
        for (const FactorPoint& point : points)
          text += fmt::format("{}{} {} {:.0f} {:.4g}\n", kFactor, plan, point.ranks, point.bytes,
                              point.factor);
  }
  for (const auto& [kind, cost] : calibration.codecs)
    text += fmt::format("{}{} {:.6g} {:.6g}\n", kCodecLine, name(kind), cost.encode_us_mb,
                        cost.decode_us_mb);
  return text;
}

std::optional<Calibration> load_rates(const Config& config) {
  const std::string path = rates_path(config);
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    return parse_rates(read_cached(path), path);
  } catch (const Error& error) {
    WEFT_WARN("{} (these rates are not used; weft calibrate makes new ones)", error.what());
    return std::nullopt;
  }
}

void save_rates(const Config& config, const Calibration& calibration) {
  const std::string path = rates_path(config);
  if (path.empty()) fail(ncclInvalidUsage, "there is no folder for rates: set WEFT_CACHE");
  write_cached(path, write_rates(calibration));
}

Rates default_rates(const std::string& section) {
  Rates rates;
  if (section == kProcessRates || section == kNetworkRates) {
    rates.switch_us = 3;
  } else if (section == kGpuRates || section == kGpuProcessRates) {
    // Fitted to an H200 that all ranks share, inside CUDA graphs; tests compare both.
    rates.call_us = 1.76;
    rates.hop_us = 0.87;
    rates.switch_us = 0.39;
    rates.copy_us_mb = 0.54;
    rates.copy_mid_us_mb = 0.57;
    rates.copy_far_us_mb = 0.27;
    rates.packet_us_mb = 0.33;
    // GPUs without peer access.
    rates.step_us = rates.message_us = 0.1;
    rates.reduce_us_mb = rates.reduce_mid_us_mb = rates.reduce_far_us_mb = 0.6;
  } else if (section == kHostFifoRates) {
    // An H200 takes 22 us for an all_reduce of 8 KiB between two ranks: a launch, a step that sends
    // and a step that receives. A poll of host memory takes 2 us, and so does a fence after a write
    // to it.
    rates.call_us = 10;
    rates.step_us = rates.message_us = 2.5;
    // A thread block reads host memory no faster.
    rates.copy_us_mb = rates.copy_mid_us_mb = rates.copy_far_us_mb = 60;
  }
  return rates;
}

}  // namespace weft
