// This process among the processes of the job. It uses MPI if mpirun started it, else it is alone.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace weft::perf {

// How the values of all ranks are combined.
enum class Combine { kRank0, kMean, kMin, kMax, kSum };

// Only the thread that made it may call its methods, except fail().
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
  // Every process gives one line of at most 127 characters and gets all lines, in process order.
  std::vector<std::string> gather(const std::string& line);

  // Any thread may call it. Prints the text, runs last_act for a few seconds at most, ends the job.
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
