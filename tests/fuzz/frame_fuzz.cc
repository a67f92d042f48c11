// Fuzzes the reader of control frames: a stream of good frames with the input in between. Only good
// frames come out, in their order.
#include "src/comm/frame.h"
#include "tests/fuzz/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  Input input(data, size);
  const SessionKey key{7, 8, 9};
  FrameSealer sealer(key);
  FrameReader reader(key);
  uint64_t sealed = 0, read = 0;
  while (!input.empty()) {
    const uint8_t choice = input.byte();
    if ((choice & 1) != 0) {
      const std::string good =
          sealer.seal({choice, -1, sealed++, std::string(size_t{choice} * 7, 'g')});
      reader.append(good.data(), good.size());
    } else {
      const auto raw = input.bytes(1 + choice);
      reader.append(reinterpret_cast<const char*>(raw.data()), raw.size());
    }
    Frame frame;
    while (reader.next(frame)) {
      require(frame.number == read++ && read <= sealed && frame.value == -1);
      require(frame.text == std::string(size_t{frame.type} * 7, 'g'));
    }
    if (reader.broken()) break;
  }
  return 0;
}
