// Fuzzes the receiving end of an encrypted connection. Nobody without the key gets a byte through.
#include <cerrno>
#include <vector>

#include "plugins/net_socket/sealed_socket.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  Input input(data, size);
  Connection connection;
  const bool checks = (input.byte() & 1) != 0;
  net_socket::SealedReceiver receiver(
      connection.near.get(),
      Seal(checks ? Seal::Kind::kChecksum : Seal::Kind::kChaCha20Poly1305, SessionKey{4, 5}));
  std::vector<std::byte> memory(1 + input.byte());  // of its exact size
  while (!input.empty()) {
    connection.put(input.bytes(1 + input.byte()));
    const ssize_t got = receiver.receive(memory.data(), memory.size());
    require(got <= static_cast<ssize_t>(memory.size()));
    require(got < 0 || checks);
    if (got < 0 && errno != EAGAIN) break;
  }
  return 0;
}
