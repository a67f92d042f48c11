// wire_perf measures collectives of two hosts in host mode, with a cable of known rate between
// them: the share of the cable that a call uses, and the bytes that cross it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "nccl.h"
#include "perf/common/errors.h"
#include "perf/network/wire.h"
#include "src/tools/command_line.h"
#include "weft.h"

namespace weft::perf {
namespace {

constexpr int kSkipped = 77;

struct Settings {
  double gbit = 5, least_share = 0, most_bytes = 0;
  int ranks = 4, runs = 5, port = 29517;
  uint64_t size = 64 << 20;
  std::string compress = "off";
  bool compare = false, bfloat16 = false;
  std::vector<std::string> collectives;
  ncclDataType_t type() const { return bfloat16 ? ncclBfloat16 : ncclFloat32; }
  size_t element() const { return bfloat16 ? 2 : 4; }
};

float value_of(int rank, size_t i) {
  return static_cast<float>((static_cast<size_t>(rank) + i) % 7);
}

// One rank's buffers for a collective of all ranks. `size` is that of the whole array.
class Rank {
 public:
  Rank(const Settings& settings, int rank)
      : settings_(settings), rank_(rank), ranks_(2 * settings.ranks) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check(ncclCommInitRank(&comm_, ranks_, id, rank), "ncclCommInitRank");
    check(ncclMemAlloc(reinterpret_cast<void**>(&in_), settings.size), "ncclMemAlloc");
    check(ncclMemAlloc(reinterpret_cast<void**>(&out_), settings.size), "ncclMemAlloc");
    const size_t count = settings.size / settings.element();
    for (size_t i = 0; i < count; i++) put(i, value_of(rank, i));
  }
  ~Rank() {
    ncclMemFree(in_);
    ncclMemFree(out_);
    ncclCommDestroy(comm_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Off, on and auto in turn. Returns false if auto is more than 10% slower than the better one.
  bool compare(const std::string& collective) {
    const std::string ways[] = {"off", collective + "=int8", "auto"};
    std::vector<double> seconds[3];
    int chosen = 0;  // runs in which auto compresses
    for (int run = -1; run < settings_.runs; run++)
      for (size_t way = 0; way < 3; way++) {
        check(weftCommSetCompression(comm_, ways[way].c_str()), "weftCommSetCompression");
        const char* plan = "";
        check(weftPlanOf(comm_, collective.c_str(), settings_.size, &plan), "weftPlanOf");
        if (way == 2 && run >= 0 && std::string(plan).find("int8") != std::string::npos) chosen++;
        for (int again = 0; again < 2; again++) {
          meet();
          const auto start = std::chrono::steady_clock::now();
          call(collective);
          meet();
          if (run >= 0 && again == 1)
            seconds[way].push_back(
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
      }
    // Other work on the machine only makes calls slower: the faster quarter tells more.
    double typical[3];
    for (size_t way = 0; way < 3; way++) {
      std::sort(seconds[way].begin(), seconds[way].end());
      typical[way] = seconds[way][seconds[way].size() / 4];
    }
    const double ratio = typical[2] / std::min(typical[0], typical[1]);
    if (rank_ == 0)
      fmt::print("{:15} {:>12} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f} {:>4} of {}\n", collective,
                 settings_.size, typical[0] * 1e3, typical[1] * 1e3, typical[2] * 1e3, ratio,
                 chosen, settings_.runs);
    std::fflush(stdout);
    return ratio <= 1.1;
  }

  // Returns false if the share or the bytes are not as wanted, or the data is wrong.
  bool measure(const std::string& collective) {
    std::vector<double> seconds;
    WireBytes before{};
    for (int run = -1; run < settings_.runs; run++) {
      meet();
      if (run == 0) {
        before = wire_bytes();
        meet();  // nobody starts before the bytes are read
      }
      const auto start = std::chrono::steady_clock::now();
      call(collective);
      meet();  // the call takes as long as its last rank
      if (run >= 0)
        seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    const WireBytes after = wire_bytes();
    const size_t wrong = wrong_elements(collective);
    check(sum_of(wrong), "ncclAllReduce");
    if (rank_ != 0) return true;
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2], bound = bound_bytes(collective);
    const double share = bound * 8 / (settings_.gbit * 1e9) / median;
    const double crossed =
        static_cast<double>(std::max(after.sent - before.sent, after.received - before.received)) /
        settings_.runs / bound;
    const char* plan = "";
    check(weftPlanOf(comm_, collective.c_str(), settings_.size, &plan), "weftPlanOf");
    fmt::print("{:15} {:>12} {:>10.1f} {:>10.2f} {:>10.3f} {:>8}  {}\n", collective, settings_.size,
               median * 1e3, share, crossed, wrong_, plan);
    std::fflush(stdout);
    return wrong_ == 0 && share >= settings_.least_share &&
           (settings_.most_bytes == 0 || crossed <= settings_.most_bytes);
  }

 private:
  size_t block() const {
    return settings_.size / settings_.element() / static_cast<size_t>(ranks_);
  }
  // The upper half of a float is a bfloat16. The values here need no more.
  void put(size_t i, float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto half = static_cast<uint16_t>(bits >> 16);
    if (settings_.bfloat16)
      std::memcpy(in_ + i * sizeof half, &half, sizeof half);
    else
      std::memcpy(in_ + i * sizeof bits, &bits, sizeof bits);
  }
  float result(size_t i) const {
    uint32_t bits = 0;
    uint16_t half = 0;
    if (settings_.bfloat16)
      std::memcpy(&half, out_ + i * sizeof half, sizeof half);
    else
      std::memcpy(&bits, out_ + i * sizeof bits, sizeof bits);
    return std::bit_cast<float>(bits | uint32_t{half} << 16);
  }

  void meet() {
    float one = 1;
    check(ncclAllReduce(&one, &one, 1, ncclFloat32, ncclSum, comm_, nullptr), "ncclAllReduce");
  }

  ncclResult_t sum_of(size_t wrong) {
    wrong_ = wrong;
    return ncclAllReduce(&wrong_, &wrong_, 1, ncclUint64, ncclSum, comm_, nullptr);
  }

  void call(const std::string& name) {
    const size_t count = block() * static_cast<size_t>(ranks_);
    ncclResult_t result = ncclInvalidArgument;
    if (name == "all_reduce") {
      result = ncclAllReduce(in_, out_, count, settings_.type(), ncclSum, comm_, nullptr);
    } else if (name == "all_gather") {
      result = ncclAllGather(in_, out_, block(), settings_.type(), comm_, nullptr);
    } else if (name == "reduce_scatter") {
      result = ncclReduceScatter(in_, out_, block(), settings_.type(), ncclSum, comm_, nullptr);
    } else if (name == "broadcast") {
      result = ncclBroadcast(in_, out_, count, settings_.type(), 0, comm_, nullptr);
    } else if (name == "reduce") {
      result = ncclReduce(in_, out_, count, settings_.type(), ncclSum, 0, comm_, nullptr);
    }
    check(result, name.c_str());
  }

  size_t wrong_elements(const std::string& name) const {
    const auto sum = [&](size_t i) {
      float total = 0;
      for (int r = 0; r < ranks_; r++) total += value_of(r, i);
      return total;
    };
    const bool scatters = name == "reduce_scatter", gathers = name == "all_gather";
    if (name == "reduce" && rank_ != 0) return 0;
    // An encoding changes an element by a share of the largest sum, or of the largest value.
    weftCompression_t report{};
    check(weftCompressionReport(comm_, &report), "weftCompressionReport");
    const double largest = 6.0 * (gathers ? 1 : ranks_);
    const double rounding = settings_.bfloat16 ? 1.0 / 256 : 0;  // of a sum to its type
    const double tolerance =
        report.calls > 0 ? (report.bound * report.passes + rounding) * largest : 0;
    size_t wrong = 0;
    for (size_t i = 0; i < (scatters ? block() : block() * static_cast<size_t>(ranks_)); i++) {
      const float want = gathers ? value_of(static_cast<int>(i / block()), i % block())
                         : name == "broadcast"
                             ? value_of(0, i)
                             : sum(scatters ? block() * static_cast<size_t>(rank_) + i : i);
      if (std::fabs(result(i) - want) > tolerance) wrong++;
    }
    return wrong;
  }

  // What must cross the wire in the busier direction: a host's data goes to the other one once.
  double bound_bytes(const std::string& name) const {
    const bool half = name == "all_gather" || name == "reduce_scatter";
    return static_cast<double>(settings_.size) / (half ? 2 : 1);
  }

  const Settings& settings_;
  const int rank_, ranks_;
  ncclComm_t comm_ = nullptr;
  std::byte *in_ = nullptr, *out_ = nullptr;
  uint64_t wrong_ = 0;
};

int play(const Settings& settings, int host, int index) {
  setenv("NCCL_COMM_ID", fmt::format("{}:{}", wire_address(0), settings.port).c_str(), 1);
  setenv("WEFT_SECRET", "of this run of wire_perf", 0);
  setenv("NCCL_HOSTID", fmt::format("wire {}", host).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", kWire, 1);
  setenv("WEFT_HOST_MODE", "1", 1);
  setenv("WEFT_COMPRESS", settings.compress.c_str(), 1);
  Rank rank(settings, host * settings.ranks + index);
  bool good = true;
  for (const std::string& collective : settings.collectives)
    good = (settings.compare ? rank.compare(collective) : rank.measure(collective)) && good;
  return good ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  using namespace weft::perf;
  Settings settings;
  weft::CommandLine program("wire_perf", "collectives of two hosts with a slow cable between them");
  program.add_option("--gbit", settings.gbit, "rate of the cable")
      .between(0.01, 100.0)
      .with_default();
  program.add_option("--ranks", settings.ranks, "processes of each host")
      .between(1, 32)
      .with_default();
  program.add_option("--size", settings.size, "bytes of the whole array; K, M, G").in_bytes();
  program.add_option("--runs", settings.runs, "timed calls; the median counts").between(1, 1000);
  program
      .add_option("--coll", settings.collectives,
                  "collectives; without it five, or with --compare those that can be compressed")
      .separated_by(',');
  program.add_option("--compress", settings.compress,
                     "WEFT_COMPRESS; plans are named as without it");
  program.add_flag("--bfloat16", settings.bfloat16, "instead of float32");
  program.add_flag("--compare", settings.compare,
                   "off, int8 and auto in turn; exit with 1 if auto is more than 10% slower");
  program.add_option("--least-share", settings.least_share, "of the cable, or exit with 1");
  program.add_option("--most-bytes", settings.most_bytes, "times the bound, or exit with 1");
  program.calls([&] {
    if (settings.collectives.empty()) {
      settings.collectives = {"all_reduce", "all_gather", "reduce_scatter"};
      if (!settings.compare)
        settings.collectives.insert(settings.collectives.end(), {"broadcast", "reduce"});
    }
    fmt::print("# 2 hosts of {} processes, a cable of {} Gbit/s\n", settings.ranks, settings.gbit);
    if (settings.compare)
      fmt::print("# {:13} {:>12} {:>10} {:>10} {:>10} {:>8}  auto compresses\n", "collective",
                 "size(B)", "off(ms)", "int8(ms)", "auto(ms)", "ratio");
    else
      fmt::print("# {:13} {:>12} {:>10} {:>10} {:>10} {:>8}  {}\n", "collective", "size(B)",
                 "time(ms)", "share", "bytes", "wrong", "plan");
    std::fflush(stdout);
    int result = kSkipped;
    try {
      result = run_on_wire(settings.gbit, settings.ranks,
                           [&](int host, int index) { return play(settings, host, index); });
    } catch (const std::exception& error) {
      fmt::print(stderr, "wire_perf: {}\n", error.what());
    }
    if (result != 0) throw weft::ExitCode{result};
  });
  return program.run(argc, argv);
}
