// One entry per command-line flag. options.cc drives getopt and the help text from this table.
#pragma once

#include <span>

#include "perf/common/options.h"

namespace weft::perf {

struct Flag {
  char letter;
  const char* name;
  const char* takes;  // allowed arguments, for help and errors; null: no argument
  const char* help;
  bool (*apply)(Options& options, const char* argument);  // false: bad argument
  const char* refused = nullptr;  // why a flag of nccl-tests is not available here
};

std::span<const Flag> flags();

}  // namespace weft::perf
