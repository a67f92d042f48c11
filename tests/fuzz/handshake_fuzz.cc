// Fuzzes the server's half of the handshake. Nobody without the secret gets in.
#include "src/transport/handshake.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  using State = ServerHandshake::State;
  Input input(data, size);
  const Secret secret{1, 2, 3};
  const bool known = (input.byte() & 1) != 0;  // whether every name is a communicator's
  Connection connection;
  ServerHandshake handshake;
  const auto find = [&](uint64_t key, const Purpose&) -> std::optional<Secret> {
    if (known || key == public_key(secret)) return secret;
    return std::nullopt;
  };
  while (!input.empty()) {
    connection.put(input.bytes(1 + input.byte()));
    const State state = handshake.advance(connection.near.get(), find);
    require(state != State::kProved);
    if (state == State::kRefused) break;
  }
  return 0;
}
