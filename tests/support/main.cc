// main() of every test program: plays a scenario if it was started for one, else runs the tests.
#include <gtest/gtest.h>

#include "tests/support/processes.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (int exit_code = 0; weft::test::play_scenario(&exit_code)) return exit_code;
  return RUN_ALL_TESTS();
}
