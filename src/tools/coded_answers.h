// Compressed plans in the answers of weft synth and weft explain.
#pragma once

#include <nlohmann/json.hpp>

#include "src/base/config.h"
#include "src/planner/coded_candidates.h"

namespace weft {

// int8, fp8 and int4, the fastest first. Empty if nothing can be compressed, or no size is asked.
std::vector<CodedCandidate> coded_candidates(const Config& config, const Machine& machine,
                                             const Collective& collective, double bytes,
                                             bool on_gpus);
nlohmann::ordered_json to_json(const CodedCandidate& candidate);
void print(const std::vector<CodedCandidate>& candidates, bool on_gpus);

// weft synth --codec.
struct CodedSynthesis {
  std::string machine, codec, out;
  Collective collective;
  double bytes = 0;
  SimulationOptions simulation;
  bool json = false;
};
void synthesize_coded(const CodedSynthesis& asked);

}  // namespace weft
