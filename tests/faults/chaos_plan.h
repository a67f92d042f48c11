// A random run: everything follows from its seed, so every process knows it and a run can be
// repeated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  // What carries data between hosts: sockets of one machine, soft-RoCE devices, or sockets between
  // network namespaces.
  enum Medium { kSockets, kVerbs, kNetwork };
  enum Fault {
    kKill,
    kStop,
    kForkAndKill,
    kClose,
    kCorrupt,
    kSlowWire,
    kLate,
    kCutOff,
    kFewDescriptors,
    kLittleMemory,
    kNoThreads,
    // Over verbs and between namespaces.
    kWireFlaps,
    kWireDown,
    kWireDark  // up, but all packets are lost
  };
  enum Phase { kInit, kCalls, kSplit, kPart, kEnd, kPhases };

  ChaosPlan(uint64_t from, Medium over) : seed(from), medium(over) {
    Random random(mix(seed));
    ranks = static_cast<int>(2 + random.below(medium == kVerbs ? 3 : 5));
    victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    fault = draw_fault(random);
    phase = static_cast<Phase>(random.below(kPhases));
    const bool crosses = medium != kSockets || fault == kCorrupt || fault == kCutOff;
    hosts = static_cast<HostLayout>(crosses ? kTwoHosts + random.below(2) : random.below(kLayouts));
    delay_us = static_cast<int>(random.below(phase == kCalls || phase == kPart ? 20000 : 3000));
    calls = static_cast<int>(10 + random.below(30));
    // Without protection a changed bit of data is what the receiver gets.
    static const char* const wires[] = {"check", "encrypt", "plain", "plain"};
    if (medium != kVerbs) wire = wires[random.below(fault == kCorrupt ? 2 : 4)];
    any_piece = random.below(2) == 0;
  }
  std::string describe() const {
    static const char* const faults[] = {"is killed",
                                         "is stopped for 1 s",
                                         "forks and is killed",
                                         "loses a socket",
                                         "sends a changed bit",
                                         "sends slowly for 1 s",
                                         "comes late",
                                         "loses all connections to other hosts",
                                         "has no descriptors left",
                                         "has no memory left",
                                         "can make no thread",
                                         "loses its wire for 1 s",
                                         "loses its wire",
                                         "loses all packets"};
    static const char* const phases[] = {"init", "calls", "split", "calls of a part", "destroy"};
    static const char* const media[] = {"", " over verbs", " in namespaces"};
    return "seed " + std::to_string(seed) + ": " + std::to_string(ranks) + " ranks, " +
           name_of(hosts) + media[medium] + ", wire " + wire + "; rank " + std::to_string(victim) +
           " " + faults[fault] + " " + std::to_string(delay_us) + " us after the begin of " +
           phases[phase];
  }

  bool dies() const { return fault == kKill || fault == kForkAndKill; }
  // Nothing may fail: everybody lives, and no data is lost.
  bool harmless() const {
    return fault == kStop || fault == kSlowWire || fault == kLate ||
           (fault == kWireFlaps && medium == kNetwork);
  }

  // A network in two halves has two records.
  bool has_one_record() const { return fault < kWireFlaps && fault != kCutOff; }
  // Such a victim's own record says what it lacks, the others' that it failed.
  bool exhausts() const { return fault >= kFewDescriptors && fault <= kNoThreads; }

  uint64_t seed;
  Medium medium;
  int ranks = 2, victim = 0, delay_us = 0, calls = 10;
  Fault fault = kKill;
  Phase phase = kCalls;
  HostLayout hosts = kOneHost;
  std::string wire = "plain";  // WEFT_WIRE
  bool any_piece = false;      // the changed bit may be of a control message

 private:
  Fault draw_fault(Random& random) const {
    static const std::vector<Fault> on_sockets = {
        kKill, kStop, kForkAndKill, kClose, kCorrupt, kSlowWire, kLate, kCutOff, kFewDescriptors};
    static const std::vector<Fault> on_verbs = {kKill,      kStop,     kForkAndKill, kClose,
                                                kWireFlaps, kWireDown, kWireDark};
    static const std::vector<Fault> on_network = {kKill,     kStop,      kClose,    kCorrupt,
                                                  kSlowWire, kWireFlaps, kWireDown, kWireDark};
    if (medium == kVerbs) return random.pick(on_verbs);
    if (medium == kNetwork) return random.pick(on_network);
    std::vector<Fault> faults = on_sockets;
    // A sanitizer ends a process that has no memory or threads left.
    if (!kSanitized) faults.insert(faults.end(), {kLittleMemory, kNoThreads});
    return random.pick(faults);
  }
};

}  // namespace weft::test
