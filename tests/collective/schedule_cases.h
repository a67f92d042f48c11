// Schedules that the library imports, and calls that they serve. Each has an array size of its own,
// so that one communicator runs them all. Results must equal those of a reference bit by bit.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/generators/generators.h"
#include "nccl.h"
#include "src/schedule/schedule_file.h"

namespace weft::test {

struct ScheduleCase {
  std::string path;  // of the file that the library reads
  std::shared_ptr<const VerifiedSchedule> verified;
  uint64_t count = 1;  // elements per block
  ncclDataType_t type = ncclFloat32;

  const Collective& collective() const { return verified->schedule().collective; }
  uint64_t array_bytes() const;
  // "012-ring.json: all_reduce of 8 ranks, 101 elements in place"
  std::string text() const;
};

// The memory of all ranks for one case, laid out as layout_of() says.
struct CaseMemory {
  explicit CaseMemory(const ScheduleCase& c);
  std::vector<std::vector<std::byte>> before, after;
};

// The call of one rank, with its buffers in `memory`.
ncclResult_t call_of(const ScheduleCase& c, int rank, std::byte* memory, ncclComm_t comm,
                     cudaStream_t stream);
// "" or the first output element of this rank that differs.
std::string difference(const ScheduleCase& c, int rank, const std::vector<std::byte>& expected,
                       const std::vector<std::byte>& got);
// "" or the plan that the library takes instead. Calls with another root than 0 and calls in place
// are not looked at.
std::string other_plan(const ScheduleCase& c, ncclComm_t comm);

// A folder of files, removed at the end. WEFT_SCHEDULES takes it.
class ScheduleCases {
 public:
  ScheduleCases();
  ~ScheduleCases();
  ScheduleCases(const ScheduleCases&) = delete;
  ScheduleCases& operator=(const ScheduleCases&) = delete;

  // Adds a schedule for the next count that is free and fits, in all modes that are proved.
  void add(const std::string& name, ScheduleFile file, uint64_t count, ncclDataType_t type);
  // What a generator makes, for all collectives that it supports and both modes.
  void add_all_of(const std::string& generator, int nranks, uint64_t count, ncclDataType_t type);
  std::string folder() const { return folder_.string(); }
  const std::vector<ScheduleCase>& all() const { return all_; }

 private:
  void add_generated(const Generator& generator, const Collective& collective, uint64_t count,
                     ncclDataType_t type);

  std::filesystem::path folder_;
  std::vector<ScheduleCase> all_;
  std::set<std::pair<CollectiveKind, uint64_t>> taken_;  // by bytes of the array
  int files_ = 0;
};

// All published schedules in a folder but the racy one, by number of ranks. Each is for float32
// arrays of about these sizes.
std::map<int, ScheduleCases> published_cases(const std::string& folder,
                                             const std::vector<uint64_t>& array_bytes);
inline constexpr size_t kPublishedSchedules = 14;

}  // namespace weft::test
