// What the processes of a scenario or a random run say about it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace weft::test {

// A rank's failure of a communicator, for judge(). `name` has no blanks.
void print_record(const std::string& name, ncclResult_t code, const std::string& text);

// What went wrong in a run; empty: nothing. Victims may end as they like. If there is `one_record`,
// all ranks that print a record of a communicator must have read the same code and text. Lines
// "TOOK seconds" raise `worst_s`.
std::string judge(const std::vector<ProcessResult>& results, const std::vector<int>& victims,
                  bool one_record, double& worst_s);

}  // namespace weft::test
