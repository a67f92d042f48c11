// This process among the processes of the job: MPI when started by mpirun, otherwise alone.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace weft::perf {

// How values of all ranks become one.
enum class Combine { kRank0, kMean, kMin, kMax, kSum };

// Only the thread that made it may call anything but fail().
class Process {
 public:
  // Starts MPI if the environment says that mpirun started us.
  Process(int* argc, char*** argv);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool prints() const { return rank_ == 0; }

  void barrier();
  void broadcast(void* data, size_t bytes);
  double combine(double value, Combine how);
  // One line of at most 127 characters from every process, in process order, on every process.
  std::vector<std::string> gather(const std::string& line);

  // Any thread: prints the text, runs last_act for at most a few seconds, ends the whole job.
  [[noreturn]] void fail(int exit_code, const std::string& text,
                         std::function<void()> last_act = nullptr);

 private:
  int rank_ = 0;
  int size_ = 1;
  bool mpi_ = false;
  std::mutex failing_;
};

std::string host_name();

}  // namespace weft::perf
