// One rank's part of plan_regret. All ranks, threads or processes, do the same in the same order. A
// shared board holds rank 0's decisions and all measurements.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "nccl.h"
#include "perf/regret/entrants.h"
#include "src/tools/interleaved_timing.h"

namespace weft::perf {

struct RegretOptions {
  int ranks = 4, repetitions = 15;
  bool processes = false;  // threads otherwise
  bool own_hosts = false;  // processes that use the network, as if each had a host
  uint64_t least = 1 << 10, most = 256 << 20;
  int factor = 4;
  bool unbound = false;
  bool plain = false;  // buffers that other processes cannot reach
  double limit = 0;
  std::vector<std::string> collectives = {"all_reduce", "all_gather", "reduce_scatter",
                                          "broadcast",  "reduce",     "alltoall"};
};

class Board {
 public:
  explicit Board(const RegretOptions& options);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Throws if a rank does not come.
  void meet();
  void give_up() { shared_->meeting.give_up(); }
  ncclUniqueId& id() { return shared_->id; }
  // The current plan cannot do this size.
  bool& refused() { return shared_->refused; }
  Lap& lap(int rank, size_t number) { return laps_[static_cast<size_t>(rank) * each_ + number]; }

 private:
  struct alignas(Lap) Shared {  // laps follow it in memory
    Meeting meeting;
    ncclUniqueId id{};
    bool refused = false;
  };
  const int ranks_;
  const size_t each_, bytes_;  // laps of a rank; bytes of the whole board
  Shared* shared_ = nullptr;
  Lap* laps_ = nullptr;
};

class Contest {
 public:
  Contest(const RegretOptions& options, Board& board, int rank);
  // Returns the exit code, on rank 0.
  int run();

 private:
  // The state of the current collective.
  struct Cell {
    std::string name;
    CollectiveKind kind;
    std::vector<Entrant> entrants;
    std::vector<bool> out;  // the plan cannot do some size, nor larger ones
    std::map<uint64_t, double> predicted_us;
  };

  std::vector<uint64_t> sizes() const;
  int repetitions() const;
  int repetitions_of(uint64_t size) const;
  uint64_t warming_bytes() const;
  void connect();
  void warm();
  void compete(Cell& cell, size_t first, size_t count);
  void ask(Cell& cell, uint64_t size);
  void try_out(Cell& cell, size_t entrant, uint64_t size);
  void measure(Cell& cell, size_t first, size_t count, uint64_t size);
  bool force(const Cell& cell, size_t entrant);
  ncclResult_t one(CollectiveKind kind, uint64_t size, int root = 0);

  const RegretOptions& options_;
  Board& board_;
  const int rank_;
  int repetition_ = 0;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void *input_ = nullptr, *output_ = nullptr;
};

}  // namespace weft::perf
