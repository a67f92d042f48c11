// What the processes of this machine answer to a request for their status, and the answers in
// words: for `weft status` and for the RAS port.
#pragma once

#include <string>
#include <vector>

namespace weft {

// A JSON object per process of this user, as status_json() has it, except the calling one. `pid` 0:
// all. `of_other_users`: of all users. A process that does not answer has "error". What others
// answer may be anything. Throws Error if `pid` belongs to another user.
std::vector<std::string> ask_processes(int pid, bool of_other_users);

// A table for people: communicators, their ranks, and what each does.
std::string status_text(const std::vector<std::string>& processes);

// {"processes": [...]}
std::string status_list(const std::vector<std::string>& processes);

}  // namespace weft
