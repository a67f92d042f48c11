// See board.h.
#include "perf/processes/board.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace weft::perf {

void Board::meet(int ranks) {
  const int now = round.load();
  if (arrived.fetch_add(1) + 1 == ranks) {
    arrived.store(0);
    round.store(now + 1);
    return;
  }
  while (round.load() == now) sched_yield();
}

int make_board() {
  const int descriptor = memfd_create("process_perf", 0);
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Board)) != 0)
    throw std::system_error(errno, std::generic_category(), "memfd_create");
  return descriptor;
}

Board& map_board(int descriptor) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  return *static_cast<Board*>(memory);
}

}  // namespace weft::perf
