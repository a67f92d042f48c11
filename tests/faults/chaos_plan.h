// A random run: everything follows from its seed, so every process knows it and a run can be
// repeated.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/sampling.h"

namespace weft::test {

struct ChaosPlan {
  enum Fault { kKill, kStop, kForkAndKill, kClose, kFewDescriptors, kLittleMemory, kFaults };
  enum Phase { kInit, kCalls, kSplit, kPart, kEnd, kPhases };
  enum Hosts { kOneHost, kTwoHosts, kOwnHosts, kLayouts };

  explicit ChaosPlan(uint64_t from) : seed(from) {
    Random random(mix(seed));
    ranks = static_cast<int>(2 + random.below(5));
    victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    // A sanitizer ends a process that has no memory left, so its runs are without that fault.
    fault = static_cast<Fault>(random.below(kSanitized ? kLittleMemory : kFaults));
    phase = static_cast<Phase>(random.below(kPhases));
    hosts = static_cast<Hosts>(random.below(kLayouts));
    delay_us = static_cast<int>(random.below(phase == kCalls || phase == kPart ? 20000 : 3000));
    calls = static_cast<int>(10 + random.below(30));
  }
  std::string host_of(int rank) const {
    return hosts == kOneHost    ? "a"
           : hosts == kTwoHosts ? (rank % 2 == 0 ? "a" : "b")
                                : std::to_string(rank);
  }
  std::string describe() const {
    static const char* const faults[] = {
        "is killed",      "is stopped for 1 s",      "forks and is killed",
        "loses a socket", "has no descriptors left", "has no memory left"};
    static const char* const phases[] = {"init", "calls", "split", "calls of a part", "destroy"};
    static const char* const layouts[] = {"one host", "two hosts", "own hosts"};
    return "seed " + std::to_string(seed) + ": " + std::to_string(ranks) + " ranks, " +
           layouts[hosts] + "; rank " + std::to_string(victim) + " " + faults[fault] + " " +
           std::to_string(delay_us) + " us after the begin of " + phases[phase];
  }

  uint64_t seed;
  int ranks = 2, victim = 0, delay_us = 0, calls = 10;
  Fault fault = kKill;
  Phase phase = kCalls;
  Hosts hosts = kOneHost;
};

}  // namespace weft::test
