// One rank of a fault scenario. It makes calls and checks how they end: result, time and words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nccl.h"
#include "tests/faults/stage.h"

namespace weft::test {

struct FaultScenario;

// How a call ended.
struct Ending {
  std::string call;
  ncclResult_t code = ncclSuccess;
  double seconds = 0;  // since the fault, or since the begin of the call if there was none yet
  std::string text;    // ncclGetLastError of the communicator
};

class Player {
 public:
  Player(int rank, const FaultScenario& scenario, Stage& stage);

  int rank() const { return rank_; }
  int nranks() const;
  bool is_victim() const;
  size_t bytes() const;
  Stage& stage() { return stage_; }

  // Makes the unique id, or waits for it, and joins. `number` tells apart the communicators of a
  // scenario. The scenario fails if the init does.
  ncclComm_t join(int number = 0, int maker = 0);
  ncclUniqueId id(int number, int maker);

  // `comm` may be nullptr.
  Ending call(const std::string& name, ncclComm_t comm, const std::function<ncclResult_t()>& fn);
  Ending all_reduce(ncclComm_t comm);
  // all_reduce() again and again until one fails.
  Ending all_reduce_until_failure(ncclComm_t comm);
  // Waits until ncclCommGetAsyncError reports an error, at most `seconds`.
  Ending async_error(ncclComm_t comm, double seconds);

  // All ranks of the communicator must call it.
  void expect_works(ncclComm_t comm);
  void expect_success(const Ending& ending);
  // The call failed with this code, soon enough, and both ncclGetLastError(comm) and
  // ncclGetLastError(NULL) have these words (extended regular expressions). All ranks that call
  // this must have got the same text.
  void expect_failure(const Ending& ending, ncclResult_t code,
                      const std::vector<std::string>& words);
  // Any thread reads what this one reads in ncclGetLastError(NULL).
  static void expect_known_to_all_threads();
  // A rank died: ncclRemoteError, and the text has its number and process id.
  // `more`: words besides.
  void expect_death(const Ending& ending, int victim, std::vector<std::string> more = {});
  void expect_within(const std::string& what, double seconds, double limit);

  // Marks the fault and ends this process at once.
  [[noreturn]] void die();
  [[noreturn]] static void leave_without_destroy();

  // A buffer of `bytes()` bytes for every rank, filled with ones (float).
  std::vector<float>& data() { return data_; }

 private:
  const int rank_;
  const FaultScenario& scenario_;
  Stage& stage_;
  std::vector<float> data_;
};

}  // namespace weft::test
