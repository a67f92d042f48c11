// main() of every test program. It plays a scenario if the process was started for one, and else
// runs the tests.
#include <gtest/gtest.h>

#include "tests/support/processes.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (int exit_code = 0; weft::test::play_scenario(&exit_code)) return exit_code;
  return RUN_ALL_TESTS();
}
