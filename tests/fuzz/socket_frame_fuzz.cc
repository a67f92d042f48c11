// Fuzzes the receiving end of the socket network: frames, sizes, messages in pieces.
#include <vector>

#include "plugins/net_socket/receiver.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  Input input(data, size);
  Connection connection;
  std::vector<Fd> sockets;
  sockets.push_back(std::move(connection.near));
  net_socket::Receiver receiver(std::move(sockets), 0, "a peer");
  std::vector<std::vector<std::byte>> memory;  // of its exact size, so that a byte more is found
  memory.reserve(8);
  std::vector<net_socket::Receiver::Request*> requests;
  for (int i = 0; i < 8; i++) {
    memory.emplace_back(size_t{input.byte()} * 16);
    requests.push_back(receiver.start(memory.back().data(), memory.back().size()));
    require(requests.back() != nullptr);
  }
  size_t done = 0;
  while (!input.empty() && !receiver.broken() && done < requests.size()) {
    connection.put(input.bytes(1 + input.byte()));
    while (done < requests.size() && receiver.complete(*requests[done])) {
      require(requests[done]->size <= memory[done].size());
      done++;
    }
  }
  return 0;
}
