// See settings.h.
#include "perf/processes/settings.h"

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "perf/common/sizes.h"
#include "perf/processes/board.h"

namespace weft::perf {
namespace {

double shared(int n) { return static_cast<double>(n - 1) / n; }
float sum(size_t i, int n) {
  return static_cast<float>(n) * static_cast<float>(i % 97) +
         0.5f * static_cast<float>(n * (n + 1));
}
size_t whole(size_t array, int) { return array; }
size_t block(size_t array, int n) { return array / static_cast<size_t>(n); }

}  // namespace

const std::vector<Contest>& contests() {
  static const std::vector<Contest> all = {
      {"all_reduce", [](size_t i, size_t, int, int n) { return sum(i, n); }, whole,
       [](const float* in, float* out, size_t array, int, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllReduce(in, out, array, ncclFloat32, ncclSum, comm, stream);
       },
       [](int n) { return 2 * shared(n); }},
      {"all_gather",
       [](size_t i, size_t array, int, int n) {
         return value(static_cast<int>(i / block(array, n)), i % block(array, n));
       },
       whole,
       [](const float* in, float* out, size_t array, int n, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllGather(in, out, block(array, n), ncclFloat32, comm, stream);
       },
       shared},
      {"reduce_scatter",
       [](size_t i, size_t array, int rank, int n) {
         return sum(i + static_cast<size_t>(rank) * block(array, n), n);
       },
       block,
       [](const float* in, float* out, size_t array, int n, ncclComm_t comm, cudaStream_t stream) {
         return ncclReduceScatter(in, out, block(array, n), ncclFloat32, ncclSum, comm, stream);
       },
       shared},
      {"broadcast", [](size_t i, size_t, int, int) { return value(0, i); }, whole,
       [](const float* in, float* out, size_t array, int, ncclComm_t comm, cudaStream_t stream) {
         return ncclBroadcast(in, out, array, ncclFloat32, 0, comm, stream);
       },
       [](int) { return 1.0; }},
      {"alltoall",
       [](size_t i, size_t array, int rank, int n) {
         const size_t part = block(array, n);
         return value(static_cast<int>(i / part), i % part + static_cast<size_t>(rank) * part);
       },
       whole,
       [](const float* in, float* out, size_t array, int n, ncclComm_t comm, cudaStream_t stream) {
         return ncclAlltoAll(in, out, block(array, n), ncclFloat32, comm, stream);
       },
       shared},
  };
  return all;
}

const char* settings_help() {
  return "process_perf: the five collectives between processes that share one GPU, beside the "
         "same\n"
         "between threads of one process. Start MPS first: tests/gpu/mps.sh process_perf ...\n"
         "  -p N  ranks (4)              -b/-e SIZE  least and largest array (64M)\n"
         "  -f N  step factor (8)        -n N  calls timed together (20)   -w N  warm-up calls "
         "(5)\n"
         "  -r N  repetitions, of which the median counts (5)\n"
         "  -G N  time calls inside a CUDA graph of N calls\n"
         "  -R 1|2  registered memory: cudaMalloc + ncclCommRegister (1), ncclMemAlloc + window "
         "(2)\n"
         "  -c NAME  only this collective     -T S  give up after S seconds per part (120)\n"
         "  -L N  instead: what a launch costs with WEFT_SHARE_BUFFERS=0 and 1, in N turns of "
         "both\n"
         "  -M NS  with -L: fail if sharing adds more (500)\n"
         "Columns: time per call, busbw, and the ratio to the threads' speed (1: as fast).\n";
}

Settings parse_settings(int argc, char** argv) {
  Settings s;
  const auto number = [](const char* text, int least, int most) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
      throw std::invalid_argument(std::string("'") + text + "' is not in " + std::to_string(least) +
                                  ".." + std::to_string(most));
    return static_cast<int>(value);
  };
  const auto size = [](const char* text) {
    const auto value = parse_size(text);
    if (!value) throw std::invalid_argument(std::string("'") + text + "' is not a size");
    return *value;
  };
  optind = 1;
  for (int flag; (flag = getopt(argc, argv, "p:b:e:f:n:w:r:G:R:L:M:c:T:h")) != -1;) {
    switch (flag) {
      case 'p':
        s.ranks = number(optarg, 1, kMostRanks);
        break;
      case 'b':
        s.min_bytes = size(optarg);
        break;
      case 'e':
        s.max_bytes = size(optarg);
        break;
      case 'f':
        s.factor = static_cast<size_t>(number(optarg, 2, 1 << 20));
        break;
      case 'n':
        s.iterations = number(optarg, 1, 1 << 20);
        break;
      case 'w':
        s.warmup = number(optarg, 0, 1 << 20);
        break;
      case 'r':
        s.repetitions = number(optarg, 1, 1000);
        break;
      case 'G':
        s.graph_calls = number(optarg, 0, 1000);
        break;
      case 'L':
        s.launch_turns = number(optarg, 0, 1000);
        break;
      case 'M':
        s.most_ns = number(optarg, 0, 1 << 20);
        break;
      case 'R':
        s.registration = number(optarg, 1, 2);
        break;
      case 'T':
        s.timeout_s = number(optarg, 1, 1 << 20);
        break;
      case 'c':
        s.only = optarg;
        break;
      case 'h':
        s.help = true;
        break;
      default:
        throw std::invalid_argument("unknown flag; -h lists them");
    }
  }
  s.max_bytes = std::max(s.max_bytes, s.min_bytes);
  if (rows_of(s).empty()) throw std::invalid_argument("no such collective: " + s.only);
  if (rows_of(s).size() > kMostRows) throw std::invalid_argument("too many rows");
  return s;
}

std::vector<Row> rows_of(const Settings& s) {
  std::vector<Row> rows;
  const auto n = static_cast<size_t>(s.ranks);
  for (const Contest& contest : contests()) {
    if (!s.only.empty() && s.only != contest.name) continue;
    for (size_t bytes = s.min_bytes; bytes <= s.max_bytes; bytes *= s.factor)
      rows.push_back({&contest, std::max(bytes / sizeof(float) / n, size_t{1}) * n});
  }
  return rows;
}

}  // namespace weft::perf
