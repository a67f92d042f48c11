// What strikes a process of a random run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::test {

// Does not return.
[[noreturn]] void kill_this_process();
// Returns when a child of this process has continued it.
void stop_for_a_second();
// Shuts one of this process's sockets down, whosoever it is.
void lose_a_socket(uint64_t draw);
// Shuts one of its connections down, by number, modulo how many there are.
void lose_connection(size_t number);
// Shuts all connections of this process down that lead to other hosts, as ranks see them.
void lose_all_tcp();
// From now on this process can make no thread with the default attributes.
void forbid_threads();
void allow_threads();

}  // namespace weft::test
