// Reads a Config by the table in config_table.cc, and describes it by the same table.
#include "src/base/config.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "src/base/config_table.h"
#include "src/base/error.h"
#include "src/base/variables.h"

namespace weft {
namespace {

std::string text(const char* name) { return variable(name).value_or(""); }
bool is_set(const char* name) { return !text(name).empty(); }

// Nothing but blanks.
bool is_blank(const char* rest) { return rest[std::strspn(rest, " \t")] == '\0'; }

// A whole number in C's notation, perhaps with K, M or G behind it. Nothing else may follow.
std::optional<long long> whole_number(const std::string& word) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(word.c_str(), &end, 0);
  if (end == word.c_str() || errno == ERANGE) return std::nullopt;
  long long unit = 1;
  switch (std::toupper(static_cast<unsigned char>(*end))) {
    case 'K':
      unit = 1 << 10;
      break;
    case 'M':
      unit = 1 << 20;
      break;
    case 'G':
      unit = 1 << 30;
      break;
    default:
      break;
  }
  long long product = 0;
  if (!is_blank(unit == 1 ? end : end + 1) || __builtin_mul_overflow(number, unit, &product))
    return std::nullopt;
  return product;
}

// These put the value of a variable into a member, or return false where it cannot be used.
bool put(const std::string& word, const ValueRules& rules, std::string& member) {
  if (!rules.one_of.empty() &&
      std::find(rules.one_of.begin(), rules.one_of.end(), word) == rules.one_of.end())
    return false;
  member = word;
  return true;
}

bool put(const std::string& word, const ValueRules&, std::optional<std::string>& member) {
  member = word;
  return true;
}

bool put(const std::string& word, const ValueRules& rules, double& member) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (end == word.c_str() || !is_blank(end)) return false;
  if (!(number >= rules.least_s && number <= rules.most_s)) return false;  // nan is neither
  member = number;
  return true;
}

bool put(const std::string& word, const ValueRules&, bool& member) {
  const auto number = whole_number(word);
  if (number) member = *number != 0;
  return number.has_value();
}

bool put(const std::string& word, const ValueRules&, int& member) {
  const auto number = whole_number(word);
  if (!number || *number != static_cast<int>(*number)) return false;
  member = static_cast<int>(*number);
  return true;
}

bool put(const std::string& word, const ValueRules& rules, size_t& member) {
  const auto number = whole_number(word);
  if (!number || *number < 0) return false;
  member = std::max(static_cast<size_t>(*number), rules.at_least);
  return true;
}

// What a value that cannot be used is not.
std::string expected_of(const ConfigVariable& row) {
  if (!row.rules.one_of.empty())
    return fmt::format("none of: {}", fmt::join(row.rules.one_of, ", "));
  if (std::holds_alternative<double Config::*>(row.member))
    return fmt::format("no number that can be used: seconds from {} to {:.0f}", row.rules.least_s,
                       row.rules.most_s);
  if (std::holds_alternative<size_t Config::*>(row.member))
    return "no number that can be used: a size from 0 on";
  return "no number that can be used";
}

void read(const ConfigVariable& row, Config& config) {
  const std::optional<std::string> word = variable(row.name);
  if (!word) return;
  const bool may_be_empty =
      std::holds_alternative<std::optional<std::string> Config::*>(row.member);
  if (word->empty() && !may_be_empty) return;
  if (!std::visit([&](auto member) { return put(*word, row.rules, config.*member); }, row.member))
    config.complaints.push_back(fmt::format("{}={} is {}", row.name, *word, expected_of(row)));
}

std::string value_of(const ConfigVariable& row, const Config& config) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = config.*member;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>)
          return row.rules.secret && !value.empty() ? "(set)" : value;
        else if constexpr (std::is_same_v<Value, std::optional<std::string>>)
          return value.value_or("");
        else if constexpr (std::is_same_v<Value, bool>)
          return value ? "1" : "0";
        else
          return fmt::format("{}", value);
      },
      row.member);
}

// A path between two devices, as NCCL names it or numbers it.
bool is_level(const std::string& level) {
  for (const char* name : {"", "LOC", "PIX", "PXB", "PHB", "SYS"})
    if (strcasecmp(level.c_str(), name) == 0) return true;
  return std::all_of(level.begin(), level.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The rules that involve several variables or members.
void apply_joint_rules(Config& config) {
  // Other levels say how far apart two GPUs may be. A probe shows what works.
  if (config.p2p_level == "0" || strcasecmp(config.p2p_level.c_str(), "LOC") == 0)
    config.p2p_disable = true;
  constexpr int kZeroCtas = 2;  // NCCL_CTA_POLICY_ZERO
  if ((config.cta_policy & kZeroCtas) != 0 && !whole_number(text("WEFT_COPY_ENGINES")))
    config.copy_engines = true;

  if (config.cache.empty() && is_set("XDG_CACHE_HOME"))
    config.cache = text("XDG_CACHE_HOME") + "/weft";
  if (config.cache.empty() && is_set("HOME")) config.cache = text("HOME") + "/.cache/weft";
  if (config.cache == "none") config.cache.clear();

  // A ring holds at least four of the largest messages (see lower.cc), each with its 64-byte
  // header.
  config.slice_bytes = std::max<size_t>(config.slice_bytes, 64) / 64 * 64;
  config.ring_bytes = std::max(config.ring_bytes, 4 * (config.slice_bytes + 64)) / 64 * 64;
  if (is_set("WEFT_SLICE_BYTES"))
    config.net_slice_bytes = config.net_sum_slice_bytes = config.gpu_net_slice_bytes =
        config.slice_bytes;
  if (is_set("WEFT_RING_BYTES") || is_set("NCCL_BUFFSIZE"))
    config.net_ring_bytes = config.gpu_net_ring_bytes = config.ring_bytes;
}

}  // namespace

Config Config::from_environment() {
  Config config;
  for (const ConfigVariable& row : config_variables()) read(row, config);
  apply_joint_rules(config);
  for (std::string& problem : conf_file_problems()) config.complaints.push_back(std::move(problem));
  if (!is_level(config.net_gdr_level))
    config.complaints.push_back(fmt::format(
        "NCCL_NET_GDR_LEVEL={} is none of LOC, PIX, PXB, PHB, SYS", config.net_gdr_level));
  return config;
}

void Config::require_valid() const {
  std::string all;
  for (const std::string& complaint : complaints) all += (all.empty() ? "" : "; ") + complaint;
  if (!all.empty()) fail(ncclInvalidUsage, "{}", all);
}

std::vector<ConfigEntry> describe(const Config& config) {
  std::vector<ConfigEntry> entries;
  for (const ConfigVariable& row : config_variables())
    entries.push_back({row.name, value_of(row, config), row.meaning});
  return entries;
}

}  // namespace weft
