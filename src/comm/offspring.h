// The ids of communicators that are derived from one: by split, shrink, grow, and by a suspension.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/communicator_options.h"
#include "src/comm/control_channel.h"
#include "src/comm/fault_state.h"
#include "src/comm/mesh.h"
#include "src/comm/rendezvous.h"

namespace weft {

// A rank's place in a derived communicator.
struct Child {
  UniqueId id;
  int rank = -1, nranks = 0;                   // rank -1: not a member
  std::vector<int> members;                    // ranks of the parent that are in it
  std::shared_ptr<HeldRendezvous> rendezvous;  // nullptr: another rank has it
};

// Callers reserve rounds in the order of their calls. What takes a round is collective and may run
// on another thread. It throws Error.
class Offspring {
 public:
  // `timeout_s`: of collective calls. All must outlive it.
  Offspring(const CommunicatorOptions& parent, ControlChannel& control, const Mesh& mesh,
            const FaultState& faults, double timeout_s)
      : parent_(parent), control_(control), mesh_(mesh), faults_(faults), timeout_s_(timeout_s) {}

  uint64_t reserve_round() { return control_.reserve(); }
  Child split(uint64_t round, int color, int key);
  // Needs no communication.
  Child shrink(const std::vector<int>& excluded);
  // `id`: on one rank, that of the rendezvous with the new ranks.
  Child grow(uint64_t round, const std::optional<UniqueId>& id, int nranks);
  // What a suspended communicator becomes. Agrees that all ranks suspend it. `has_graphs`: this
  // rank cannot.
  Child successor(uint64_t round, bool has_graphs);

 private:
  Child make(const Secret& secret, const std::vector<int>& members) const;
  std::vector<std::string> gather(uint64_t round, const std::string& blob);

  const CommunicatorOptions& parent_;
  ControlChannel& control_;
  const Mesh& mesh_;
  const FaultState& faults_;
  const double timeout_s_;
  std::map<uint64_t, uint64_t> shrinks_;  // per hash of excluded ranks: the number of shrinks
};

}  // namespace weft
