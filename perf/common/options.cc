// getopt_long over the table of flags.
#include "perf/common/options.h"

#include <getopt.h>

#include "perf/common/errors.h"
#include "perf/common/flags.h"
#include "perf/common/sizes.h"

namespace weft::perf {
namespace {

std::string flag_name(const Flag& flag) {
  return std::string("-") + flag.letter + " (--" + flag.name + ")";
}

const Flag* find_flag(int letter) {
  for (const Flag& flag : flags()) {
    if (flag.letter == letter) return &flag;
  }
  return nullptr;
}

[[noreturn]] void refuse(const Flag& flag) {
  throw UsageError(flag_name(flag) + " is not available: " + flag.refused);
}

void apply(const Flag& flag, Options& options, const char* argument) {
  if (flag.refused != nullptr) refuse(flag);
  if (!flag.apply(options, argument)) {
    throw UsageError(flag_name(flag) + " takes " + flag.takes + ", not '" + argument + "'");
  }
}

[[noreturn]] void complain(int code, const char* word) {
  if (const Flag* flag = find_flag(optopt); flag != nullptr) {
    if (flag->refused != nullptr) refuse(*flag);
    if (code == ':') throw UsageError(flag_name(*flag) + " needs an argument: " + flag->takes);
  }
  const std::string name = optopt != 0 ? std::string("-") + static_cast<char>(optopt) : word;
  throw UsageError("unknown flag " + name + "; --help lists the flags");
}

void check_together(const Options& options) {
  if (options.max_bytes < options.min_bytes) {
    throw UsageError("-e (--maxbytes) " + describe_size(options.max_bytes) +
                     " is less than -b (--minbytes) " + describe_size(options.min_bytes));
  }
  if (options.step_factor == 1 && options.step_bytes == 0 &&
      options.max_bytes > options.min_bytes) {
    throw UsageError("-i (--stepbytes) 0 never gets from -b to -e");
  }
}

}  // namespace

Options parse_options(int argc, char** argv) {
  std::string letters = ":";
  std::vector<option> names;
  for (const Flag& flag : flags()) {
    letters += flag.letter;
    if (flag.takes != nullptr) letters += ':';
    names.push_back(
        {flag.name, flag.takes != nullptr ? required_argument : no_argument, nullptr, flag.letter});
  }
  names.push_back({});
  Options options;
  opterr = 0;
  for (;;) {
    optopt = 0;
    const int code = getopt_long(argc, argv, letters.c_str(), names.data(), nullptr);
    if (code == -1) break;
    if (code == '?' || code == ':') complain(code, argv[optind - 1]);
    apply(*find_flag(code), options, optarg);
  }
  if (optind < argc) throw UsageError(std::string("unexpected argument '") + argv[optind] + "'");
  check_together(options);
  return options;
}

std::string help_text(const std::string& program) {
  std::string text = "usage: " + program + " [flags]\n";
  for (const Flag& flag : flags()) {
    text += std::string("  -") + flag.letter + ", --" + flag.name;
    if (flag.refused != nullptr) {
      text += std::string(": not available, ") + flag.refused + "\n";
      continue;
    }
    if (flag.takes != nullptr) text += std::string(" <") + flag.takes + ">";
    text += std::string(": ") + flag.help + "\n";
  }
  return text;
}

std::vector<size_t> row_sizes(const Options& options) {
  std::vector<size_t> sizes;
  size_t size = options.min_bytes;
  while (size <= options.max_bytes) {
    sizes.push_back(size);
    const size_t next = options.step_factor > 1 ? size * static_cast<size_t>(options.step_factor)
                                                : size + options.step_bytes;
    if (next <= size) break;
    size = next;
  }
  return sizes;
}

}  // namespace weft::perf
