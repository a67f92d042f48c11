// Fuzzes both halves of the network plugins' handshake. Nobody without the key gets in.
#include "plugins/common/handshake.h"
#include "tests/fuzz/wire_check.h"

namespace {

template <typename Handshake>
void play(Handshake handshake, weft::test::Input& input) {
  weft::test::Connection connection;
  while (!input.empty()) {
    connection.put(input.bytes(1 + input.byte()));
    const auto progress = handshake.advance(connection.near.get());
    weft::test::require(progress != weft::net_common::Progress::kDone);
    if (progress == weft::net_common::Progress::kFailed) break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  test::Input input(data, size);
  const Secret key{4, 5, 6};
  if ((input.byte() & 1) != 0)
    play(net_common::ListenerHandshake(key, seals_for(Wire::kEncrypt)), input);
  else
    play(net_common::ConnectorHandshake(key, 7, 0, 2, Seal::Kind::kChaCha20Poly1305), input);
  return 0;
}
