// Compressed plans as tools show them: what they would take on a machine, and what they lose.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/schedule/verify.h"
#include "src/simulator/simulator.h"

namespace weft {

// By Codec.
using CodecCosts = std::array<CodecCost, kCodecs>;
// On CPUs those that `weft calibrate` measured here, else one core's of a server with 128-bit
// vectors. On GPUs those of an H200.
CodecCosts codec_costs(const Config& config, bool on_gpus);
CodecCosts default_codec_costs();
CodecCosts gpu_codec_costs();

struct CodedCandidate {
  CodecSpec spec;
  Schedule schedule;
  double time_us = 0, algbw_gbps = 0;
  double share = 1;  // of the bytes between hosts that are left
  int passes = 0;
  double bound = 0;  // of one encoding, see codec_bound()
  bool in_place = false;
};

// The host of every GPU of a machine.
std::vector<int> hosts_of_gpus(const Machine& machine);

// `bytes`: of the whole array of float32. Proves the schedule. Throws Error(ncclInvalidUsage) if
// nothing can be compressed.
CodedCandidate evaluate_coded(const Machine& machine, const Collective& collective, double bytes,
                              const CodecSpec& spec, SimulationOptions options,
                              const CodecCosts& costs);

}  // namespace weft
