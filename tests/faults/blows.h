// What strikes a process of a random run.
#pragma once

namespace weft::test {

// Does not return.
[[noreturn]] void kill_this_process();
// Returns when a child of this process has continued it.
void stop_for_a_second();
// Shuts one of this process's sockets down, whosoever it is.
void lose_a_socket();

}  // namespace weft::test
