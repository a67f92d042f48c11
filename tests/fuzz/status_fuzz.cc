// Fuzzes what other processes answer when they are asked for their status, and what clients say to
// the RAS port.
#include "src/comm/process_status.h"
#include "src/comm/ras.h"
#include "tests/fuzz/wire_check.h"

namespace weft::test {
namespace {

void check_status(const std::string& answer) {
  for (const char c : status_text({answer, "{}"}))
    require(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
}

void check_ras(const std::string& text) {
  bool json = false;
  RasSession session([&](bool as_json) {
    json = as_json;
    return std::string("status\n");
  });
  for (size_t at = 0; at < text.size() && !session.over();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string answer = session.answer(text.substr(at, end - at));
    require(!answer.empty() && answer.back() == '\n');
    at = end + 1;
  }
}

}  // namespace
}  // namespace weft::test

// The first byte says what the rest is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::test;
  if (size == 0) return 0;
  return check_text(data + 1, size - 1, (data[0] & 1) != 0 ? check_ras : check_status);
}
