// See log_time.h.
#include "src/base/log_time.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "src/base/log.h"

namespace weft::log {
namespace {

constexpr std::array<std::pair<const char*, Level>, 5> kLevels = {{
    {"VERSION", Level::kVersion},
    {"WARN", Level::kWarn},
    {"INFO", Level::kInfo},
    {"ABORT", Level::kAbort},
    {"TRACE", Level::kTrace},
}};

uint32_t bits_of(const std::string& word) {
  uint32_t bits = 0;
  for (const auto& [name, level] : kLevels)
    if (strcasecmp(word.c_str(), name) == 0 || strcasecmp(word.c_str(), "ALL") == 0)
      bits |= 1u << static_cast<int>(level);
  return bits;
}

}  // namespace

uint32_t stamped_levels(const std::string& text) {
  const bool inverts = !text.empty() && text[0] == '^';
  uint32_t bits = 0;
  for (size_t begin = inverts ? 1 : 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    bits |= bits_of(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return inverts ? bits_of("ALL") & ~bits : bits;
}

std::string stamp(const std::string& format, const timespec& time) {
  std::string whole;
  for (size_t i = 0; i < format.size(); i++) {
    const char digit = i + 2 < format.size() ? format[i + 1] : '\0';
    if (format[i] == '%' && digit >= '1' && digit <= '9' && format[i + 2] == 'f') {
      whole += fmt::format("{:09}", time.tv_nsec).substr(0, static_cast<size_t>(digit - '0'));
      i += 2;
    } else if (format[i] == '%' && i + 1 < format.size()) {
      whole += format.substr(i++, 2);
    } else {
      whole += format[i] == '_' ? ' ' : format[i];
    }
  }
  tm local{};
  localtime_r(&time.tv_sec, &local);
  std::array<char, 256> text{};
  const size_t size = strftime(text.data(), text.size(), whole.c_str(), &local);
  return {text.data(), size};
}

std::string utc_time(double seconds_ago) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto ms = static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000 -
                  static_cast<int64_t>(seconds_ago * 1000);
  const int64_t day = ms % 86'400'000;
  return fmt::format("{:02}:{:02}:{:02}.{:03} UTC", day / 3'600'000, day / 60'000 % 60,
                     day / 1000 % 60, day % 1000);
}

}  // namespace weft::log
