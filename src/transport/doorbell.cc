// Futexes that work between processes. Accesses to `sleeping` and to the FIFO counters are
// sequentially consistent, so no wake-up is lost. Either the ringer sees the sleeper, or the
// sleeper's last look sees the news.
#include "src/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace weft {

void ring(const Bell& bell) noexcept {
  if (bell.door == nullptr) return;
  if (__atomic_load_n(&bell.door->sleeping, __ATOMIC_SEQ_CST) == 0) return;
  if (__atomic_exchange_n(&bell.door->sleeping, 0, __ATOMIC_SEQ_CST) == 0) return;
  if (bell.event_fd >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t written = write(bell.event_fd, &one, sizeof one);
    return;
  }
  wake_all(*bell.door);
}

uint32_t prepare_sleep(Doorbell& door) noexcept {
  const uint32_t ticket = __atomic_load_n(&door.ticket, __ATOMIC_SEQ_CST);
  __atomic_store_n(&door.sleeping, 1, __ATOMIC_SEQ_CST);
  return ticket;
}

void sleep(Doorbell& door, uint32_t ticket, uint64_t timeout_ns) noexcept {
  timespec limit{static_cast<time_t>(timeout_ns / 1000000000u),
                 static_cast<long>(timeout_ns % 1000000000u)};
  syscall(SYS_futex, &door.ticket, FUTEX_WAIT, ticket, &limit, nullptr, 0);
}

void wake_all(Doorbell& door) noexcept {
  __atomic_fetch_add(&door.ticket, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &door.ticket, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft
