// Sleeping and waking on a Doorbell without losing a wake-up, across threads and processes.
#pragma once

#include "src/transport/fifo.h"

namespace weft {

// Call it after the news is visible (a sequentially consistent store). Costs one load if nobody
// sleeps.
void ring(const Bell& bell) noexcept;

// Protocol of a sleeper: prepare_sleep(), look for work once more, then sleep(). `ticket` is the
// value that prepare_sleep() returned.
uint32_t prepare_sleep(Doorbell& door) noexcept;
void sleep(Doorbell& door, uint32_t ticket, uint64_t timeout_ns) noexcept;

// Wakes every sleeper unconditionally (abort, a peer's death).
void wake_all(Doorbell& door) noexcept;

}  // namespace weft
