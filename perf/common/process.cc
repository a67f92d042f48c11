// Wraps a few MPI calls. All are no-ops for a process that runs alone.
#include "perf/common/process.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#ifdef WEFT_PERF_MPI
#include <mpi.h>
#endif

namespace weft::perf {
namespace {

bool started_by_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

constexpr auto kLastActLimit = std::chrono::seconds(5);

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

#ifdef WEFT_PERF_MPI

Process::Process(int* argc, char*** argv) {
  if (!started_by_mpirun()) return;
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  mpi_ = true;
}

Process::~Process() {
  if (mpi_) MPI_Finalize();
}

void Process::barrier() {
  if (mpi_) MPI_Barrier(MPI_COMM_WORLD);
}

void Process::broadcast(void* data, size_t bytes) {
  if (mpi_) MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}

double Process::combine(double value, Combine how) {
  if (!mpi_) return value;
  if (how == Combine::kRank0) {
    broadcast(&value, sizeof value);
    return value;
  }
  const MPI_Op op = how == Combine::kMin ? MPI_MIN : how == Combine::kMax ? MPI_MAX : MPI_SUM;
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
  return how == Combine::kMean ? value / size_ : value;
}

std::vector<std::string> Process::gather(const std::string& line) {
  if (!mpi_) return {line};
  constexpr size_t kBytes = 128;
  std::array<char, kBytes> mine{};
  std::strncpy(mine.data(), line.c_str(), kBytes - 1);
  std::vector<char> all(kBytes * static_cast<size_t>(size_));
  MPI_Allgather(mine.data(), kBytes, MPI_CHAR, all.data(), kBytes, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> lines;
  for (size_t p = 0; p < static_cast<size_t>(size_); ++p) lines.emplace_back(&all[p * kBytes]);
  return lines;
}

#else

Process::Process(int*, char***) {
  if (started_by_mpirun()) {
    std::fprintf(stderr, "# built without MPI: every process runs by itself\n");
  }
}

Process::~Process() = default;
void Process::barrier() {}
void Process::broadcast(void*, size_t) {}
double Process::combine(double value, Combine) { return value; }
std::vector<std::string> Process::gather(const std::string& line) { return {line}; }

#endif

void Process::fail(int exit_code, const std::string& text, std::function<void()> last_act) {
  failing_.lock();  // never released: a second thread that fails waits here for the end
  std::fflush(stdout);
  std::fprintf(stderr, "\n%s: process %d (pid %d): %s\n", host_name().c_str(), rank_,
               static_cast<int>(getpid()), text.c_str());
  if (last_act) {
    std::packaged_task<void()> task(std::move(last_act));
    std::future<void> done = task.get_future();
    std::thread(std::move(task)).detach();
    done.wait_for(kLastActLimit);
  }
#ifdef WEFT_PERF_MPI
  if (mpi_) MPI_Abort(MPI_COMM_WORLD, exit_code);
#endif
  std::_Exit(exit_code);
}

}  // namespace weft::perf
