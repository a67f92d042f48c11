// Reads WEFT_REQUIRE.
#include "tests/support/require.h"

#include <cstdlib>
#include <sstream>

namespace weft::test {

bool is_required(const std::string& feature) {
  const char* list = std::getenv("WEFT_REQUIRE");
  if (list == nullptr) return false;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    if (item == feature) return true;
  }
  return false;
}

}  // namespace weft::test
