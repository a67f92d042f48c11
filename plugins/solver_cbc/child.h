// Runs a piece of work in a child process: it may overrun, crash or eat all memory, and the caller
// still goes on in time.
#pragma once

#include <cstddef>
#include <functional>

namespace weft {

enum class ChildEnd { kDone, kTooLate, kCrashed, kCannotStart };

// `work` runs in a copy of this process whose output goes nowhere; the only thing it shares with
// the caller is `shared`, which must come from shared_memory(). Kills the child after `seconds`.
ChildEnd run_in_child(double seconds, const std::function<void()>& work);

// Zeroed memory that a child shares with its parent; null when there is none.
void* shared_memory(size_t bytes);
void free_shared(void* memory, size_t bytes);

}  // namespace weft
