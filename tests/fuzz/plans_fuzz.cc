// Fuzzes the plans that rank 0 sends at init: the selection table, the NICs, and the schedules.
#include "src/planner/init_plans.h"
#include "tests/fuzz/wire_check.h"

namespace weft::test {
namespace {

void check_plans(const std::string& text) {
  const CommunicatorPlans plans = CommunicatorPlans::decode(text);
  const std::string encoded = plans.encode();
  require(CommunicatorPlans::decode(encoded).encode() == encoded);
  const auto schedules = static_cast<int>(plans.schedules->all().size());
  for (const PlanOption& option : plans.table.options) require(option.schedule < schedules);
  require(plans.nics.of_rank.size() == plans.nics.distance.size());
}

void check_nics(const std::string& text) {
  const NicPlan plan = NicPlan::decode(text);
  const NicPlan again = NicPlan::decode(plan.encode());
  require(again.of_rank == plan.of_rank && again.distance == plan.distance);
  require(again.routes == plan.routes);
}

}  // namespace
}  // namespace weft::test

// The first byte says what the rest is: NICs alone, which libFuzzer reaches sooner so, or all.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::test;
  if (size == 0) return 0;
  return check_text(data + 1, size - 1, (data[0] & 1) != 0 ? check_nics : check_plans);
}
