// What ncclCommGetAsyncError says while several calls are under way.
#include "src/comm/progress.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Progress, LastsUntilTheLastCallIsDone) {
  Progress progress;
  EXPECT_EQ(progress.get(), ncclSuccess);
  progress.begin();
  progress.begin();
  progress.end(ncclSuccess);
  EXPECT_EQ(progress.get(), ncclInProgress);
  progress.end(ncclSuccess);
  EXPECT_EQ(progress.get(), ncclSuccess);
}

// For example a collective that fails while the communicator is being finalized.
TEST(Progress, ASuccessDoesNotHideAFailureBeforeIt) {
  Progress progress;
  progress.begin();
  progress.begin();
  progress.end(ncclRemoteError);
  EXPECT_EQ(progress.get(), ncclInProgress);
  progress.end(ncclSuccess);
  EXPECT_EQ(progress.get(), ncclRemoteError);
  progress.begin();
  progress.end(ncclSuccess);
  EXPECT_EQ(progress.get(), ncclSuccess) << "the next call begins anew";
}

}  // namespace
}  // namespace weft
