// Calls collectives through the library's API with schedules from files. The tests of imported
// schedules share it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nccl.h"
#include "src/schedule/collective.h"

namespace weft::test {

struct ApiCall {
  Collective collective;
  size_t count = 1;  // elements per block, of int32
  bool in_place = false;
  ncclRedOp_t op = ncclSum;
};

// One rank's buffers for a call. They are filled, used and checked.
class ApiBuffers {
 public:
  ApiBuffers(const ApiCall& call, int rank);
  ncclResult_t run(ncclComm_t comm);
  // The number of output elements that are wrong.
  size_t wrong() const;

 private:
  int32_t input(int rank, size_t index) const;
  int32_t expected(size_t block, size_t index) const;

  const ApiCall call_;
  const int rank_;
  std::vector<int32_t> memory_;
  int32_t *input_ = nullptr, *output_ = nullptr;
};

// Makes the calls one after the other, with a thread per rank. Returns the number of wrong elements
// over all ranks.
size_t run_calls(int nranks, const std::vector<ApiCall>& calls);

// A folder that is removed at the end, and the library's log meanwhile.
class ScheduleFolder {
 public:
  ScheduleFolder();
  ~ScheduleFolder();
  ScheduleFolder(const ScheduleFolder&) = delete;
  ScheduleFolder& operator=(const ScheduleFolder&) = delete;

  std::string path() const { return folder_.string(); }
  // Writes a file there and returns its path.
  std::string add(const std::string& name, const std::string& text) const;
  // Lines of the log that contain `part`.
  std::vector<std::string> log_lines(const std::string& part) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace weft::test
