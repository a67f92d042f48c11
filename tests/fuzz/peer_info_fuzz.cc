// Fuzzes the first message of a rank. What is taken from it may be used without further checks.
#include "src/comm/peer_info.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_text(data, size, [](const std::string& text) {
    std::string padded = text;
    padded.resize(sizeof(PeerInfo));
    for (const std::string& message : {text, padded}) {
      const auto info = decode_peer_info(message);
      if (!info) continue;
      test::require(message.size() == sizeof(PeerInfo));
      test::require(info->address_count >= 0 && info->address_count <= 4 && info->cores >= 1);
      test::require(std::string(info->gpu).size() < sizeof info->gpu);
      test::require(std::string(info->unix_name).size() < sizeof info->unix_name);
    }
  });
}
