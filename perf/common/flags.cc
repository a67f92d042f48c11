// The table of flags.
#include "perf/common/flags.h"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "perf/common/sizes.h"

namespace weft::perf {
namespace {

std::optional<long> parse_integer(const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0') return std::nullopt;
  return value;
}

template <int Options::*field, long low, long high>
bool integer(Options& options, const char* text) {
  const auto value = parse_integer(text);
  if (!value || *value < low || *value > high) return false;
  options.*field = static_cast<int>(*value);
  return true;
}

template <size_t Options::*field>
bool bytes(Options& options, const char* text) {
  const auto value = parse_size(text);
  if (value) options.*field = *value;
  return value.has_value();
}

bool set_op(Options& options, const char* text) {
  if (std::strcmp(text, "all") == 0) {
    options.ops = {Op::kSum, Op::kProd, Op::kMax, Op::kMin, Op::kAvg, Op::kMulSum};
    return true;
  }
  const auto op = find_op(text);
  if (op) options.ops = {*op};
  return op.has_value();
}

bool set_type(Options& options, const char* text) {
  if (std::strcmp(text, "all") == 0) {
    options.types.clear();
    for (int t = 0; t < ncclNumTypes; ++t) options.types.push_back(static_cast<ncclDataType_t>(t));
    return true;
  }
  const auto type = find_data_type(text);
  if (type) options.types = {*type};
  return type.has_value();
}

bool set_root(Options& options, const char* text) {
  if (std::strcmp(text, "all") == 0) return options.root = -1, true;
  return integer<&Options::root, -1, INT_MAX>(options, text);
}

bool set_file(Options& options, const char* text) {
  options.json_file = text;
  return *text != '\0';
}

bool set_help(Options& options, const char*) { return options.help = true; }

constexpr const char* kTypeNames =
    "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or "
    "all";
constexpr const char* kNoGraph = "host mode has no CUDA graphs";
constexpr const char* kNoKernel = "host mode has no device kernels";
constexpr const char* kNoDeviceMemory = "host mode has no device memory to report";

using O = Options;
constexpr long kMany = INT_MAX;

// clang-format off
constexpr Flag kFlags[] = {
    {'t', "nthreads", "1 or more", "threads per process", integer<&O::threads, 1, 4096>},
    {'g', "ngpus", "1 or more", "ranks per thread", integer<&O::ranks_per_thread, 1, 4096>},
    {'b', "minbytes", "a size", "first size (K, M, G)", bytes<&O::min_bytes>},
    {'e', "maxbytes", "a size", "last size", bytes<&O::max_bytes>},
    {'i', "stepbytes", "a size", "size step", bytes<&O::step_bytes>},
    {'f', "stepfactor", "2 or more", "multiply sizes instead", integer<&O::step_factor, 2, kMany>},
    {'n', "iters", "1 or more", "timed iterations", integer<&O::iterations, 1, kMany>},
    {'m', "agg_iters", "1 or more", "calls per group", integer<&O::aggregated, 1, kMany>},
    {'w', "warmup_iters", "0 or more", "untimed iterations", integer<&O::warmup, 0, kMany>},
    {'N', "run_cycles", "0 or more", "repeat all rows (0: for ever)", integer<&O::cycles, 0, kMany>},
    {'p', "parallel_init", "0 or 1", "threads make their communicators", integer<&O::parallel_init, 0, 1>},
    {'c', "check", "0 or more", "checked iterations", integer<&O::checks, 0, kMany>},
    {'o', "op", "sum, prod, min, max, avg, mulsum or all", "reduction", set_op},
    {'d', "datatype", kTypeNames, "element type", set_type},
    {'r', "root", "a rank or all", "root of rooted collectives", set_root},
    {'z', "blocking", "0, 1, 2 or 3", "after each call: 1 wait, 2 barrier of all ranks, 3 both", integer<&O::blocking, 0, 3>},
    {'y', "stream_null", "0 or 1", "use the null stream (always so in host mode)", integer<&O::stream_null, 0, 1>},
    {'T', "timeout", "seconds", "give up on a row after so long (0: never)", integer<&O::timeout_s, 0, kMany>},
    {'C', "report_cputime", "0 or 1", "CPU time of the calling thread instead of wall time", integer<&O::report_cpu_time, 0, 1>},
    {'S', "report_timestamps", "0 or 1", "when each row ended", integer<&O::report_timestamps, 0, 1>},
    {'J', "output_file", "a path", "write results as JSON", set_file},
    {'a', "average", "0, 1, 2 or 3", "time of rank 0, mean, min, max over ranks", integer<&O::average, 0, 3>},
    {'R', "local_register", "0, 1 or 2", "register buffers: 1 ncclCommRegister, 2 symmetric windows", integer<&O::local_register, 0, 2>},
    {'x', "cta_policy", "0, 1 or 2", "ncclConfig_t.CTAPolicy", integer<&O::cta_policy, 0, 2>},
    {'u', "unalign", "0 or more", "start buffers this many elements off alignment", integer<&O::unalign, 0, 1 << 20>},
    {'I', "per_iter_timing", "0 or 1", "time iterations one by one", integer<&O::per_iteration, 0, 1>},
    {'K', "per_iter_skip", "0 or more", "iterations left out of these statistics", integer<&O::per_iteration_skip, 0, kMany>},
    {'G', "cudagraph", "", "", nullptr, kNoGraph},
    {'D', "device_implementation", "", "", nullptr, kNoKernel},
    {'V', "device_cta_count", "", "", nullptr, kNoKernel},
    {'M', "memory_report", "", "", nullptr, kNoDeviceMemory},
    {'h', "help", nullptr, "this text", set_help},
};
// clang-format on

}  // namespace

std::span<const Flag> flags() { return kFlags; }

}  // namespace weft::perf
