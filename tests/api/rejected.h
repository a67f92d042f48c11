// Checks of a refused call: NCCL's code, and a text that names the argument.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "nccl.h"
#include "tests/support/threads.h"

namespace weft::test {

inline void expect_rejected(ncclResult_t got, ncclResult_t expected, const std::string& named,
                            const char* call) {
  EXPECT_EQ(got, expected) << call;
  const char* text = ncclGetLastError(nullptr);
  ASSERT_NE(text, nullptr);
  EXPECT_NE(std::string(text).find(named), std::string::npos)
      << call << ": the text should name '" << named << "', but says: " << text;
}

// The call is refused with invalid argument (or invalid usage), and the text names the argument.
#define EXPECT_BAD_ARGUMENT(named, call) \
  ::weft::test::expect_rejected((call), ncclInvalidArgument, (named), #call)
#define EXPECT_BAD_USAGE(named, call) \
  ::weft::test::expect_rejected((call), ncclInvalidUsage, (named), #call)

// The handle was valid once. Either code is fine; a crash or success is not.
#define EXPECT_STALE(call)                                                 \
  do {                                                                     \
    const ncclResult_t stale = (call);                                     \
    EXPECT_TRUE(stale == ncclInvalidArgument || stale == ncclInvalidUsage) \
        << #call << " gave " << stale;                                     \
    EXPECT_STRNE(ncclGetLastError(nullptr), "");                           \
  } while (false)

}  // namespace weft::test
