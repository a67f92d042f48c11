// Runs work in a child process. The child may overrun, crash or use all memory; the caller still
// continues in time.
#pragma once

#include <cstddef>
#include <functional>

namespace weft {

enum class ChildEnd { kDone, kTooLate, kCrashed, kCannotStart };

// `work` runs in a copy of this process whose output is discarded. It shares only memory from
// shared_memory() with the caller. Kills the child after `seconds`.
ChildEnd run_in_child(double seconds, const std::function<void()>& work);

// Zeroed memory that a child shares with its parent; nullptr if there is none.
void* shared_memory(size_t bytes);
void free_shared(void* memory, size_t bytes);

}  // namespace weft
