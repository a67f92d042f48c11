// process_perf measures collectives between processes on one GPU, and between threads for
// comparison. The parent never uses CUDA. It starts itself again for every part.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/paired.h"
#include "perf/processes/worker.h"
#include "weft.h"

extern char** environ;

namespace weft::perf {
namespace {

constexpr const char* kPart = "WEFT_PROCESS_PERF";  // "mode first-rank ranks-here descriptor"

// Runs in a child: its ranks, as threads. Ends with _Exit, because other ranks' kernels may wait
// for a rank that failed.
int play(const Settings& settings, const char* part) {
  int mode = 0, first = 0, count = 0, descriptor = 0;
  if (std::sscanf(part, "%d %d %d %d", &mode, &first, &count, &descriptor) != 4) return 2;
  if (weftHostMode() != 0) {
    std::fprintf(stderr, "process_perf: no GPU here, or WEFT_HOST_MODE is set\n");
    return 3;
  }
  Board& board = map_board(descriptor);
  std::vector<std::thread> threads;
  for (int rank = first; rank < first + count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        measure(settings, static_cast<Mode>(mode), rank, board);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "process_perf: rank %d: %s\n", rank, e.what());
        std::_Exit(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return 0;
}

pid_t start(char** argv, Mode mode, int first, int count, int descriptor, const char* more) {
  const std::string part = std::string(kPart) + "=" + std::to_string(static_cast<int>(mode)) + " " +
                           std::to_string(first) + " " + std::to_string(count) + " " +
                           std::to_string(descriptor);
  // One hardware queue per rank of a process. Processes share the queues that MPS has.
  std::string queues =
      std::string("CUDA_DEVICE_MAX_CONNECTIONS=") + (mode == Mode::kThreads ? "32" : "4");
  std::string text = part;
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  if (std::getenv("CUDA_DEVICE_MAX_CONNECTIONS") == nullptr) environment.push_back(queues.data());
  environment.push_back(text.data());
  std::string setting = more;
  const std::string name = setting.substr(0, setting.find('=') + 1);
  std::erase_if(environment, [&](const char* entry) {
    return !name.empty() && std::strncmp(entry, name.c_str(), name.size()) == 0;
  });
  if (!setting.empty()) environment.push_back(setting.data());
  environment.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environment.data());
  if (error != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(error));
  return pid;
}

// Runs one part and leaves its rows in `rows`. Returns false if it failed or took too long.
// `more`: an environment variable.
bool run_part(const Settings& settings, Mode mode, char** argv, std::vector<Board::Row>& rows,
              const char* more = "") {
  const int descriptor = make_board();
  const int each = mode == Mode::kThreads ? settings.ranks : 1;
  std::vector<pid_t> running;
  for (int first = 0; first < settings.ranks; first += each)
    running.push_back(start(argv, mode, first, each, descriptor, more));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(settings.timeout_s);
  bool good = true;
  while (!running.empty()) {
    if (good && std::chrono::steady_clock::now() > deadline) {
      std::fprintf(stderr, "process_perf: not done after %d s\n", settings.timeout_s);
      good = false;
    }
    for (size_t i = 0; i < running.size();) {
      if (!good) kill(running[i], SIGKILL);
      int status = 0;
      if (waitpid(running[i], &status, WNOHANG) != running[i]) {
        ++i;
        continue;
      }
      good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
    }
    usleep(2000);
  }
  const Board& board = map_board(descriptor);
  rows.assign(board.rows, board.rows + rows_of(settings).size());
  close(descriptor);
  return good;
}

void print_table(const Settings& settings, const std::vector<Board::Row> (&parts)[3]) {
  std::printf("# %d ranks on one GPU, float32 sum, out of place, %s\n", settings.ranks,
              settings.graph_calls > 0 ? "calls inside a CUDA graph" : "calls on a stream");
  std::printf("# registered: %s\n", settings.registration == 2
                                        ? "ncclMemAlloc and ncclCommWindowRegister"
                                        : "cudaMalloc and ncclCommRegister");
  std::printf("# %-14s %12s %12s  %26s  %34s  %34s\n", "", "", "", "threads     ",
              "processes, plain      ", "processes, registered    ");
  std::printf("# %-14s %12s %12s  %9s %8s %7s  %9s %8s %7s %7s  %9s %8s %7s %7s %7s\n",
              "collective", "size(B)", "count", "time(us)", "busbw", "launch", "time(us)", "busbw",
              "launch", "ratio", "time(us)", "busbw", "launch", "ratio", "#wrong");
  const std::vector<Row> rows = rows_of(settings);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double bytes = static_cast<double>(rows[i].array * sizeof(float));
    std::printf("  %-14s %12.0f %12zu", rows[i].contest->name, bytes, rows[i].array);
    long wrong = 0;
    for (size_t part = 0; part < 3; ++part) {
      const Board::Row& row = parts[part][i];
      const double busbw = bytes / row.us / 1e3 * rows[i].contest->bus_factor(settings.ranks);
      std::printf("  %9.2f %8.2f %7.2f", row.us, busbw, row.launch_us);
      if (part > 0) std::printf(" %7.2f", parts[0][i].us / row.us);
      wrong += row.wrong;
    }
    std::printf(" %7ld\n", wrong);
  }
}

// Plain buffers with sharing off and on, in turn. Medians over the turns. Processes differ by up to
// a microsecond from start to start, so a difference counts by what its interval leaves no doubt
// of.
int compare_launches(const Settings& settings, char** argv) {
  const std::vector<Row> rows = rows_of(settings);
  std::vector<std::vector<double>> off(rows.size()), on(rows.size());
  std::vector<double> fresh[2];
  long wrong = 0;
  for (int turn = 0; turn < settings.launch_turns; ++turn) {
    for (const bool shares : {turn % 2 == 0, turn % 2 != 0}) {
      std::vector<Board::Row> part;
      if (!run_part(settings, Mode::kPlain, argv, part,
                    shares ? "WEFT_SHARE_BUFFERS=1" : "WEFT_SHARE_BUFFERS=0"))
        return 3;
      for (size_t i = 0; i < rows.size(); ++i) {
        (shares ? on : off)[i].push_back(part[i].launch_us);
        wrong += part[i].wrong;
      }
      fresh[shares ? 1 : 0].push_back(part[0].fresh_us);
    }
  }
  std::printf("# %d ranks on one GPU: host time of a call on a stream in us, %d turns\n",
              settings.ranks, settings.launch_turns);
  std::printf("# %-14s %12s %12s %12s %12s  %s\n", "collective", "size(B)", "sharing off",
              "sharing on", "difference", "95% interval");
  double worst = -1e9;
  std::vector<double> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<double> differences;
    for (size_t turn = 0; turn < on[i].size(); ++turn)
      differences.push_back(on[i][turn] - off[i][turn]);
    all.insert(all.end(), differences.begin(), differences.end());
    const Interval added = median_interval(std::move(differences));
    worst = std::max(worst, added.low);
    std::printf("  %-14s %12zu %12.2f %12.2f %12.2f  %.2f to %.2f\n", rows[i].contest->name,
                rows[i].array * sizeof(float), median(off[i]), median(on[i]), added.middle,
                added.low, added.high);
  }
  const Interval overall = median_interval(std::move(all));
  std::printf("# a call with a new buffer: %.2f us off, %.2f us on\n", median(fresh[0]),
              median(fresh[1]));
  std::printf(
      "# sharing adds %.2f us (%.2f to %.2f) in the median of all rows, and surely %.2f us in the "
      "worst row (limit %.2f); wrong values: %ld\n",
      overall.middle, overall.low, overall.high, worst, settings.most_ns / 1e3, wrong);
  return worst <= settings.most_ns / 1e3 && wrong == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  const Settings settings = parse_settings(argc, argv);
  if (settings.help) {
    std::printf("%s", settings_help());
    return 0;
  }
  if (const char* part = std::getenv(kPart)) return play(settings, part);
  if (settings.launch_turns > 0) return compare_launches(settings, argv);
  std::vector<Board::Row> parts[3];
  for (const Mode mode : {Mode::kThreads, Mode::kPlain, Mode::kRegistered})
    if (!run_part(settings, mode, argv, parts[static_cast<size_t>(mode)])) return 3;
  print_table(settings, parts);
  long wrong = 0;
  for (const auto& part : parts)
    for (const Board::Row& row : part) wrong += row.wrong;
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  try {
    return weft::perf::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "process_perf: %s\n", e.what());
    return 2;
  }
}
