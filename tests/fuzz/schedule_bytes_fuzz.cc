// Fuzz target: the reader of schedules as bytes.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "src/base/error.h"
#include "src/schedule/schedule_bytes.h"
#include "tests/fuzz/schedule_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const weft::ScheduleFile file = weft::read_schedule_bytes(bytes, "input");
    if (!(weft::read_schedule_bytes(weft::write_schedule_bytes(file), "again") == file)) {
      std::fprintf(stderr, "broken promise: bytes come back as they were written\n");
      std::abort();
    }
    weft::fuzz::prove_if_cheap(file);
  } catch (const weft::Error&) {
  }
  return 0;
}
