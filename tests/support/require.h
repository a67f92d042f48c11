// A skipped test prints why. WEFT_REQUIRE=gpu,rdma,mpi,cuda-toolkit,shared,large,browser turns such
// skips into failures.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace weft::test {

// Whether WEFT_REQUIRE (a comma list) names this feature.
bool is_required(const std::string& feature);

}  // namespace weft::test

// Ends the test. It is a skip that prints `reason`, or a failure if WEFT_REQUIRE names `feature`.
#define WEFT_SKIP(feature, reason)                                                   \
  do {                                                                               \
    if (::weft::test::is_required(feature)) {                                        \
      GTEST_FAIL() << "WEFT_REQUIRE names '" << (feature) << "', but: " << (reason); \
    }                                                                                \
    GTEST_SKIP() << (reason);                                                        \
  } while (false)
