// One rank of a plan: its communicators, buffers and streams. A thread of its own makes and uses
// it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "perf/overlap/rank_stream.h"
#include "src/workload/plan.h"

namespace weft::perf::overlap {

// Unique ids, per communicator and instance.
using Ids = std::vector<std::vector<ncclUniqueId>>;
Ids make_ids(const workload::Plan& plan);

// When a call ended on one rank, after the rank's start. 0: it has no part in it.
struct Ran {
  double us = 0;  // until everything was done
  std::vector<double> ends_us;
};

class PlannedRank {
 public:
  PlannedRank(const workload::Plan& plan, int rank, const Ids& ids);
  ~PlannedRank();
  PlannedRank(const PlannedRank&) = delete;
  PlannedRank& operator=(const PlannedRank&) = delete;

  // Issues the calls with these numbers, in order, and waits for them. A call waits for those in
  // its `after` that are among them.
  Ran run(const std::vector<int>& calls);

  // Whether the results of all_reduce and reduce_scatter are sums of ones, at both ends.
  bool sums_are_right() const;

 private:
  struct Member {  // a communicator that the rank is in
    ncclComm_t comm = nullptr;
    int rank = 0, size = 0;
    float *send = nullptr, *recv = nullptr;  // ones, and what is not summed
    float* sums = nullptr;
    size_t summed = 0;  // elements of `sums` that must be the number of ranks
  };

  RankStream& stream_of(const std::string& name);
  void issue(const workload::PlannedCall& call, RankStream& stream);
  bool takes_part(const workload::PlannedCall& call) const;

  const workload::Plan& plan_;
  const int rank_;
  std::map<int, Member> members_;  // by communicator
  std::map<std::string, std::unique_ptr<RankStream>> streams_;
};

}  // namespace weft::perf::overlap
