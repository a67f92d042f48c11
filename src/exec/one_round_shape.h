// In most small collectives every rank sends at most one message to each peer, and then receives at
// most one from each. Such a program needs no interpreter: a few numbers describe it.
#pragma once

#include <cstdint>
#include <optional>

#include "src/schedule/program.h"

namespace weft {

// Blocks are numbered as in Program: block i of a buffer begins i * count elements after its start.
// The message to rank p is input block `send_base + p * send_step`. The message from rank p goes to
// output block `receive_base + p * receive_step`. If the program reduces, it goes into the sum,
// which becomes output block `receive_base`.
struct OneRoundShape {
  uint32_t send_to = 0, receive_from = 0;  // a bit per rank
  int32_t send_base = 0, send_step = 0;
  int32_t receive_base = 0, receive_step = 0;
  bool reduces = false;
  bool sums_own = false;  // the sum includes input block `own_from`
  bool copies_own = false;
  int32_t own_from = 0, own_to = 0;
};

// Returns nothing if the program has another shape. Also checks that sums are taken in rank order.
std::optional<OneRoundShape> one_round_shape(const Program& program);

}  // namespace weft
