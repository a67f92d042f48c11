// What the processes of a scenario or a random run say about it.
#pragma once

#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace weft::test {

// What went wrong in a run; empty: nothing. Victims may end as they like. Lines "RECORD text" must
// be the same on all ranks if there is `one_record`. Lines "TOOK seconds" raise `worst_s`.
std::string judge(const std::vector<ProcessResult>& results, const std::vector<int>& victims,
                  bool one_record, double& worst_s);

}  // namespace weft::test
