// Sketches, and functions that tests use with them.
#pragma once

#include <filesystem>
#include <string>

#include "algorithms/synth/taccl/sketch.h"
#include "tests/support/require.h"

#define REQUIRE_SKETCHES()                            \
  if (!std::filesystem::exists(WEFT_SHARED_SKETCHES)) \
  WEFT_SKIP("shared", std::string("no sketches at ") + WEFT_SHARED_SKETCHES)

namespace weft::test {

// Two hosts of eight GPUs. GPU 0 sends to GPU 1 of the other host.
inline constexpr const char* kNdv2Sketch =
    R"({"nnodes": 2, "intranode_sketch": {"strategy": "none"},
  "internode_sketch": {"strategy": "relay", "internode_conn": {"0": [1]}},
  "symmetry_offsets": [[8, 16]], "hyperparameters": {"input_chunkup": 1}})";

// Two hosts of sixteen GPUs on a switch. Odd GPUs send to even ones.
inline constexpr const char* kDgx2Sketch = R"({"nnodes": 2,
  "intranode_sketch": {"strategy": "switch", "switches": [[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]],
    "switch_hyperedge_strategy": ["uc-min"]},
  "internode_sketch": {"strategy": "relay",
    "internode_conn": {"1":[0],"3":[2],"5":[4],"7":[6],"9":[8],"11":[10],"13":[12],"15":[14]},
    "gpus_to_sender_rev_map": {"1":[0,1],"3":[2,3],"5":[4,5],"7":[6,7],"9":[8,9],"11":[10,11],
      "13":[12,13],"15":[14,15]},
    "enforce_ordering": true},
  "symmetry_offsets": [[2, 16], [16, 32]], "hyperparameters": {"input_chunkup": 2}})";

// One host without any restriction.
inline constexpr const char* kOneHostSketch = R"({"nnodes": 1,
  "intranode_sketch": {"strategy": "none"}, "symmetry_offsets": [],
  "hyperparameters": {"input_chunkup": 1}})";

inline Sketch sketch(const char* json) { return read_sketch(json, "sketch"); }

// The text with one part replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace weft::test
