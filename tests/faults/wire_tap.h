// What this process sends over TCP, on its way: looked at, changed or delayed. The program's own
// send() and sendmsg() stand in for the network. Any thread may call these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::test {

class WireTap {
 public:
  // Control messages are shorter.
  static constexpr size_t kLeastData = 2000;

  // One bit of the next piece of at least `least` bytes changes; `draw` says which one. `then` is
  // called when it has left. Sockets that pass pieces to sendmsg() are not damaged.
  static void damage_next(size_t least, uint64_t draw, void (*then)());
  // For a second every piece leaves up to 20 ms late.
  static void delay_for_a_second(uint64_t seed);
  // Whether a piece has left that holds these words. Set them before anything is sent.
  static void look_for(std::string_view words);
  static bool has_shown();
};

}  // namespace weft::test
