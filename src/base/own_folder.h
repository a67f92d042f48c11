// Where this library, or this program, lies. Packages keep the parts beside each other.
#pragma once

#include <string>

namespace weft {

// With a '/' at its end; empty: unknown.
std::string own_folder();

}  // namespace weft
