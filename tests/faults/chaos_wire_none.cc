// Builds without verbs have no random runs over them.
#include <stdexcept>

#include "tests/faults/chaos_wire.h"

namespace weft::test {

std::unique_ptr<ChaosWire> make_chaos_wire() { throw std::logic_error(verbs_obstacle()); }
std::string verbs_obstacle() { return "built without infiniband/verbs.h"; }
std::map<std::string, std::string> verbs_environment(const ChaosPlan&, int) {
  throw std::logic_error(verbs_obstacle());
}
void mend_wires() {}

}  // namespace weft::test
