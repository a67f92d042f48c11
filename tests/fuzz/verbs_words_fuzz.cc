// Fuzzes the control words of the verbs plugin, and what is worked out from them: the rails of two
// hosts, their pairs, and how messages are divided among the lanes.
#include <cstring>

#include "plugins/net_verbs/control.h"
#include "tests/fuzz/wire_check.h"

namespace weft::test {
namespace {

using namespace net_verbs;

void check_hello(Hello hello, uint64_t size) {
  if (!make_sane(hello)) return;
  require(std::strlen(hello.host) < sizeof hello.host);
  const std::span<const RailAddress> rails(hello.rail.data(), hello.rails);
  // The other side has the same rails, or fewer.
  for (const size_t others : {rails.size(), size_t{1}}) {
    const auto pairs = pair_rails(rails, rails.first(others));
    require(pairs.size() <= kMaxRails);
    std::vector<LaneRate> lanes;
    for (const RailPair& pair : pairs) {
      require(pair.first < rails.size() && pair.second < others);
      const auto p = static_cast<uint32_t>(&pair - pairs.data());
      lanes.push_back({p, p, pair.speed_mbps});
    }
    if (lanes.empty()) continue;
    for (const bool split : {true, false}) {
      const Stripes stripes = Division(lanes, split).divide(size, size);
      uint64_t end = 0;
      for (size_t s = 0; s < stripes.count; s++) {
        require(stripes.list[s].begin == end && stripes.list[s].end >= end);
        require(stripes.list[s].lane < lanes.size());
        end = stripes.list[s].end;
      }
      require(stripes.count > 0 && end == size);
    }
  }
}

void check_word(const Control& control, Word word) {
  switch (word) {
    case Word::kHello:
      return check_hello(control.payload<Hello>(), 3 << 20);
    case Word::kMeet: {
      const Finished finished = control.payload<Meet>().finished;
      for (uint64_t m = 0; m < 3; m++)
        require(!finished.has(finished.before + 32 + m) || finished.before > UINT64_MAX - 64);
      return;
    }
    case Word::kReady:
      control.payload<Ready>();
      return;
    case Word::kRefuse:
      control.payload<Refuse>();
      return;
    case Word::kBye:
      control.payload<Bye>();
      return;
  }
}

}  // namespace
}  // namespace weft::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  using namespace weft::test;
  Input input(data, size);
  Connection connection;
  Control control(std::move(connection.near));
  try {
    while (!input.empty()) {
      connection.put(input.bytes(1 + 16 * input.byte()));
      control.move();
      for (Word word{}; control.hear(word);) check_word(control, word);
    }
  } catch (const Error& error) {
    require(error.what()[0] != '\0');
  }
  return 0;
}
