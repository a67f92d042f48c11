// Fuzzes what ranks tell each other when they register a window.
#include "src/comm/window_offer.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto offer = decode_window_offer(text);
  if (offer) require(encode(*offer) == text);
  return 0;
}
