// The last stage of TACCL's pipeline. It decides which consecutive sends on links between hosts
// travel together, to pay for one message, and when exactly everything begins. The order stays.
// Pure functions.
#pragma once

#include <vector>

#include "algorithms/synth/taccl/linear_model.h"
#include "algorithms/synth/taccl/ordering.h"

namespace weft {

// As in TACCL.
inline constexpr int kMostTogether = 6;

// Per send of the order: 1 if it leaves in one message with the send before it on its link.
using Together = std::vector<uint8_t>;

struct ExactTimes {
  bool possible = true;  // false: a send would wait for itself
  std::vector<double> begin_us;
  double time_us = 0;
};

ExactTimes exact_times(const TacclProblem& problem, const TacclOrder& order,
                       const Together& together);

// Sends that may join the one before them: on links between hosts whose messages have a fixed cost.
std::vector<int32_t> joinable(const TacclProblem& problem, const TacclOrder& order);

// Joins consecutive sends one after the other, unless that takes longer.
Together join_greedily(const TacclProblem& problem, const TacclOrder& order);

// The same problem as a MILP, with a solution to start from.
struct ContiguityModel {
  LinearModel linear;
  std::vector<double> start;
  std::vector<int32_t> joins;  // per entry of joinable(): column
};
ContiguityModel contiguity_model(const TacclProblem& problem, const TacclOrder& order,
                                 const Together& start);
Together together_of(const TacclProblem& problem, const TacclOrder& order,
                     const ContiguityModel& model, const std::vector<double>& values);

}  // namespace weft
