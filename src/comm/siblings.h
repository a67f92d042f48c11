// The communicators of this process in host mode, and the threads that make their calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

struct ncclComm;

namespace weft {

class StallExchange;

// A communicator that can be used.
struct Sibling {
  uint64_t thread = 0;  // see ncclComm::caller
  StallExchange* exchange = nullptr;
  std::shared_ptr<void> keeps;  // while it lives, so does the communicator
};

// Control thread.
std::vector<Sibling> siblings();

// Whether this process has one thread at most that is not the library's.
bool has_one_caller();
// A number for the calling thread; no two threads of a process have the same.
uint64_t thread_number();
// The calling thread makes a call. `background`: for another thread, which does not wait for it.
void note_caller(ncclComm& comm, bool background);

}  // namespace weft
