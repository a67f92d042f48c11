// Fuzz target: the reader of schedules as bytes.
#include <cstddef>
#include <cstdint>

#include "src/base/error.h"
#include "src/schedule/schedule_bytes.h"
#include "tests/fuzz/schedule_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    weft::fuzz::check(weft::read_schedule_bytes(text, "input"));
  } catch (const weft::Error&) {
  }
  return 0;
}
