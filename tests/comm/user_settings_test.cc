// What a communicator has again after it was suspended.
#include "src/comm/user_settings.h"

#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "src/comm/communicator.h"
#include "src/comm/one_sided.h"

namespace weft::test {
namespace {

std::unique_ptr<Communicator> lone_rank() {
  CommunicatorOptions options;
  options.id = UniqueId::create();
  options.label = "rank 0 of 1";
  return std::make_unique<Communicator>(std::move(options));
}

TEST(UserSettings, AreAppliedToTheNextCommunicator) {
  const auto communicator = lone_rank();
  apply({}, *communicator);
  EXPECT_EQ(communicator->context().priority.load(), host::Priority::kNormal);
  const auto forced = [&] {
    return std::string(
        communicator->chooser().choose({{CollectiveKind::kAllReduce, 1, 0}, 4}).name);
  };
  EXPECT_NE(forced(), "ring");
  UserSettings settings;
  settings.priority = host::Priority::kHigh;
  settings.plans[CollectiveKind::kAllReduce] = &kRing;
  apply(settings, *communicator);
  EXPECT_EQ(communicator->context().priority.load(), host::Priority::kHigh);
  EXPECT_EQ(forced(), "ring");
  settings.compression = "all_reduce=nonsense";
  EXPECT_THROW(apply(settings, *communicator), Error);
}

}  // namespace
}  // namespace weft::test
