// Fuzzes the reader of measured rates. What it takes can be written and read again.
#include "src/planner/rates_file.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_text(data, size, [](const std::string& text) {
    const std::string again = write_rates(parse_rates(text, "input"));
    test::require(write_rates(parse_rates(again, "again")) == again);
  });
}
