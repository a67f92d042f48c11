// Reads the rule from the environment and applies it to ranks.
#include "perf/common/split.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "perf/common/errors.h"

namespace weft::perf {
namespace {

uint32_t parse_number(const std::string& text, int base, const char* variable) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, base);
  if (end == text.c_str() || *end != '\0' || value > 0x7fffffff) {
    throw UsageError(std::string(variable) + " has no number in '" + text + "'");
  }
  return static_cast<uint32_t>(value);
}

}  // namespace

Split Split::from_environment() {
  Split split;
  if (const char* mask = std::getenv("NCCL_TESTS_SPLIT_MASK")) {
    split.kind_ = Kind::kAnd;
    split.value_ = parse_number(mask, 16, "NCCL_TESTS_SPLIT_MASK");
  }
  const char* rule = std::getenv("NCCL_TESTS_SPLIT");
  if (rule == nullptr) return split;
  std::string text;
  for (const char* c = rule; *c != '\0'; ++c) {
    if (*c != ' ') text += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  }
  static constexpr struct {
    const char* word;
    Kind kind;
  } kRules[] = {{"AND", Kind::kAnd}, {"OR", Kind::kOr}, {"MOD", Kind::kMod}, {"DIV", Kind::kDiv},
                {"&", Kind::kAnd},   {"|", Kind::kOr},  {"%", Kind::kMod},   {"/", Kind::kDiv}};
  for (const auto& known : kRules) {
    const std::string word = known.word;
    if (text.rfind(word, 0) != 0) continue;
    split.kind_ = known.kind;
    split.value_ = parse_number(text.substr(word.size()), 0, "NCCL_TESTS_SPLIT");
    const bool divides = known.kind == Kind::kMod || known.kind == Kind::kDiv;
    if (divides && split.value_ == 0) throw UsageError("NCCL_TESTS_SPLIT divides by 0");
    return split;
  }
  throw UsageError(std::string("NCCL_TESTS_SPLIT is AND, OR, MOD or DIV and a number, not '") +
                   rule + "'");
}

int Split::colour(int rank) const {
  const auto r = static_cast<uint32_t>(rank);
  switch (kind_) {
    case Kind::kAnd:
      return static_cast<int>(r & value_);
    case Kind::kOr:
      return static_cast<int>(r | value_);
    case Kind::kMod:
      return static_cast<int>(r % value_);
    case Kind::kDiv:
      return static_cast<int>(r / value_);
    default:
      return 0;
  }
}

int Split::rank_in_group(int rank) const { return group_size(rank, rank); }

int Split::group_size(int rank, int nranks) const {
  int size = 0;
  for (int r = 0; r < nranks; ++r) size += colour(r) == colour(rank);
  return size;
}

int Split::smallest_group(int nranks) const {
  int smallest = nranks;
  for (int r = 0; r < nranks; ++r) smallest = std::min(smallest, group_size(r, nranks));
  return smallest;
}

}  // namespace weft::perf
