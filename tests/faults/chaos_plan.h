// A random run: everything follows from its seed, so every process knows it and a run can be
// repeated.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "tests/support/sampling.h"

namespace weft::test {

enum HostLayout { kOneHost, kTwoHosts, kOwnHosts, kLayouts };

inline std::string name_of(HostLayout hosts) {
  static const char* const names[] = {"one host", "two hosts", "own hosts"};
  return names[hosts];
}
inline std::string host_of(HostLayout hosts, int rank) {
  return hosts == kOneHost    ? "a"
         : hosts == kTwoHosts ? (rank % 2 == 0 ? "a" : "b")
                              : std::to_string(rank);
}

struct ChaosPlan {
  enum Fault {
    kKill,
    kStop,
    kForkAndKill,
    kClose,
    kFewDescriptors,
    kLittleMemory,
    // Over verbs, instead of the last two.
    kWireFlaps,
    kWireDown,
    kWireDark  // up, but all packets are lost
  };
  enum Phase { kInit, kCalls, kSplit, kPart, kEnd, kPhases };

  ChaosPlan(uint64_t from, bool over_verbs) : seed(from), verbs(over_verbs) {
    Random random(mix(seed));
    ranks = static_cast<int>(2 + random.below(verbs ? 3 : 5));
    victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    fault = verbs ? verbs_fault(random) : socket_fault(random);
    phase = static_cast<Phase>(random.below(kPhases));
    hosts = static_cast<HostLayout>(verbs ? kTwoHosts + random.below(2) : random.below(kLayouts));
    delay_us = static_cast<int>(random.below(phase == kCalls || phase == kPart ? 20000 : 3000));
    calls = static_cast<int>(10 + random.below(30));
  }
  std::string describe() const {
    static const char* const faults[] = {"is killed",
                                         "is stopped for 1 s",
                                         "forks and is killed",
                                         "loses a socket",
                                         "has no descriptors left",
                                         "has no memory left",
                                         "loses its wire for 1 s",
                                         "loses its wire",
                                         "loses all packets"};
    static const char* const phases[] = {"init", "calls", "split", "calls of a part", "destroy"};
    return "seed " + std::to_string(seed) + ": " + std::to_string(ranks) + " ranks, " +
           name_of(hosts) + (verbs ? " over verbs" : "") + "; rank " + std::to_string(victim) +
           " " + faults[fault] + " " + std::to_string(delay_us) + " us after the begin of " +
           phases[phase];
  }

  bool dies() const { return fault == kKill || fault == kForkAndKill; }

  uint64_t seed;
  bool verbs;
  int ranks = 2, victim = 0, delay_us = 0, calls = 10;
  Fault fault = kKill;
  Phase phase = kCalls;
  HostLayout hosts = kOneHost;

 private:
  static Fault socket_fault(Random& random) {
    // A sanitizer ends a process that has no memory left, so its runs are without that fault.
    return static_cast<Fault>(random.below(kSanitized ? kLittleMemory : kWireFlaps));
  }
  static Fault verbs_fault(Random& random) {
    static constexpr Fault kOf[] = {kKill,      kStop,     kForkAndKill, kClose,
                                    kWireFlaps, kWireDown, kWireDark};
    return kOf[random.below(std::size(kOf))];
  }
};

}  // namespace weft::test
