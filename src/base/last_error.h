// The last error of the process, for threads that made no failing call themselves.
#pragma once

#include <string>

namespace weft {

void remember_error(const std::string& text);
// Empty: there was none.
std::string remembered_error();

}  // namespace weft
