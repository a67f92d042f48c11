// A scenario's context travels to a started process in its environment.
#pragma once

#include <map>
#include <string>

#include "tests/support/processes.h"

namespace weft::test {

std::map<std::string, std::string> scenario_environment(const std::string& scenario,
                                                        const ProcessContext& context);

}  // namespace weft::test
