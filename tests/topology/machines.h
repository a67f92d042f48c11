// Shared by the topology tests: files of real machines, expected texts, small graphs.
#pragma once

#include <string>

#include "src/topology/graph/machine.h"

namespace weft::test {

// A file below ../shared/machines, or "" if there is none.
std::string shared_machine(const std::string& name);

// Compares with tests/topology/expected/NAME.txt; WEFT_UPDATE_EXPECTED=1 writes it anew.
void expect_text(const std::string& name, const std::string& text);

// The highest all-gather throughput, in GB/s of the whole array: the cut bound, by max-flow.
double gather_bound(const Machine& machine);

// The text of the Error that a call throws, or "" if it throws none.
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace weft::test
