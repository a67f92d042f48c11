// The wire of a random run over verbs, in the guest of tests/rdma.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/faults/chaos_plan.h"

namespace weft::test {

// Of the process that breaks the wire. (A soft-RoCE device cannot be taken away: the kernel waits
// for those who use it.) Make it before there is load: starting a program in the guest then takes
// seconds.
class ChaosWire {
 public:
  virtual ~ChaosWire() = default;
  // kWireFlaps, kWireDown or kWireDark.
  virtual void strike(ChaosPlan::Fault fault) = 0;
};
std::unique_ptr<ChaosWire> make_chaos_wire();

// Why there are no runs over verbs here. Empty if there can be.
std::string verbs_obstacle();
// The environment of a rank.
std::map<std::string, std::string> verbs_environment(const ChaosPlan& plan, int rank);
// After a run: whatever it broke works again.
void mend_wires();

}  // namespace weft::test
