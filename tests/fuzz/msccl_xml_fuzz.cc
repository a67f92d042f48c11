// Fuzz target: the reader of MSCCL XML.
#include <cstddef>
#include <cstdint>

#include "src/base/error.h"
#include "src/schedule/msccl_xml.h"
#include "tests/fuzz/schedule_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    weft::fuzz::check(weft::read_msccl_xml(text, "input"));
  } catch (const weft::Error&) {
  }
  return 0;
}
