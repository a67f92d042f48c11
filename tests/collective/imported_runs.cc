// See imported_runs.h.
#include "tests/collective/imported_runs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>

#include "tests/support/threads.h"

namespace weft::test {

int32_t ApiBuffers::input(int rank, size_t index) const {
  // Values are small, so that averages are exact and products do not overflow.
  if (call_.op == ncclProd) return (static_cast<int>(index) + rank) % 2 + 1;
  return call_.collective.nranks * (static_cast<int>(index % 1009) * 3 + rank * 5 - 7);
}

int32_t ApiBuffers::expected(size_t block, size_t index) const {
  const Collective& c = call_.collective;
  const bool mine = c.kind == CollectiveKind::kAllToAll || c.kind == CollectiveKind::kScatter ||
                    c.kind == CollectiveKind::kReduceScatter;
  const size_t at = (mine ? static_cast<size_t>(rank_) * call_.count : 0) + index;
  if (!c.reduces())
    return input(c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kScatter
                     ? c.root
                     : static_cast<int>(block),
                 at);
  int32_t result = input(0, at);
  for (int r = 1; r < c.nranks; r++) {
    const int32_t next = input(r, at);
    result = call_.op == ncclMax    ? std::max(result, next)
             : call_.op == ncclProd ? result * next
                                    : result + next;
  }
  return call_.op == ncclAvg ? result / c.nranks : result;
}

ApiBuffers::ApiBuffers(const ApiCall& call, int rank) : call_(call), rank_(rank) {
  const Collective& c = call.collective;
  const auto inputs = static_cast<size_t>(c.input_blocks(rank)) * call.count;
  const auto outputs = static_cast<size_t>(c.output_blocks(rank)) * call.count;
  const bool shared = call.in_place && inputs > 0 && outputs > 0;
  memory_.assign(shared ? std::max(inputs, outputs) : inputs + outputs, -1);
  const Collective::Overlap overlap = c.overlap(rank, 1);
  input_ = memory_.data() + (shared ? static_cast<size_t>(overlap.input_at) * call.count : 0);
  output_ =
      memory_.data() + (shared ? static_cast<size_t>(overlap.output_at) * call.count : inputs);
  for (size_t i = 0; i < inputs; i++) input_[i] = input(rank, i);
}

ncclResult_t ApiBuffers::run(ncclComm_t comm) {
  const size_t n = call_.count;
  const int root = call_.collective.root;
  switch (call_.collective.kind) {
    case CollectiveKind::kAllReduce:
      return ncclAllReduce(input_, output_, n, ncclInt32, call_.op, comm, nullptr);
    case CollectiveKind::kReduce:
      return ncclReduce(input_, output_, n, ncclInt32, call_.op, root, comm, nullptr);
    case CollectiveKind::kBroadcast:
      return ncclBroadcast(input_, output_, n, ncclInt32, root, comm, nullptr);
    case CollectiveKind::kAllGather:
      return ncclAllGather(input_, output_, n, ncclInt32, comm, nullptr);
    case CollectiveKind::kReduceScatter:
      return ncclReduceScatter(input_, output_, n, ncclInt32, call_.op, comm, nullptr);
    case CollectiveKind::kAllToAll:
      return ncclAlltoAll(input_, output_, n, ncclInt32, comm, nullptr);
    default:
      return ncclInvalidUsage;
  }
}

size_t ApiBuffers::wrong() const {
  size_t found = 0;
  const auto blocks = static_cast<size_t>(call_.collective.output_blocks(rank_));
  for (size_t block = 0; block < blocks; block++)
    for (size_t i = 0; i < call_.count; i++)
      found += output_[block * call_.count + i] != expected(block, i) ? 1 : 0;
  return found;
}

size_t run_calls(int nranks, const std::vector<ApiCall>& calls) {
  std::atomic<size_t> wrong{0};
  run_ranks_as_threads(nranks, [&](int rank, ncclComm_t comm) {
    for (const ApiCall& call : calls) {
      ApiBuffers buffers(call, rank);
      WEFT_OK(buffers.run(comm));
      wrong += buffers.wrong();
    }
  });
  return wrong;
}

ScheduleFolder::ScheduleFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "weft-schedules-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = name;
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING", 1);
  setenv("NCCL_DEBUG_FILE", (folder_ / "log.%p.txt").c_str(), 1);
  ncclResetDebugInit();
}

ScheduleFolder::~ScheduleFolder() {
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_DEBUG_SUBSYS");
  unsetenv("NCCL_DEBUG_FILE");
  ncclResetDebugInit();
  std::filesystem::remove_all(folder_);
}

std::string ScheduleFolder::add(const std::string& name, const std::string& text) const {
  const std::filesystem::path path = folder_ / name;
  std::ofstream(path) << text;
  return path.string();
}

std::vector<std::string> ScheduleFolder::log_lines(const std::string& part) const {
  std::vector<std::string> lines;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().rfind("log.", 0) != 0) continue;  // one per process
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      if (line.find(part) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

}  // namespace weft::test
