// WEFT_TRACE=FILE writes a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing. Every rank
// is a process of the timeline. Its first row shows whole operations. The other rows show its
// lanes, its sends per peer, and its links to other hosts. All processes of a job that name the
// same file share it: on one host they have the same clock. Off unless a Track has a file name.
// Then any thread may record.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace weft::trace {

// One rank in the timeline, as long as it lives. The process writes the file when its last Track
// ends, and again at exit if more spans came.
class Track {
 public:
  Track() = default;
  // `file` may contain %h (host) and %p (pid). `job` shows whether the file's contents belong to
  // the same run. `communicator` separates ranks of several communicators.
  Track(const std::string& file, const std::string& label, uint64_t job, uint64_t communicator,
        int rank);
  ~Track();
  Track(Track&& other) noexcept;
  Track& operator=(Track&& other) noexcept;
  int64_t id() const { return id_; }  // -1: nothing is recorded

 private:
  int64_t id_ = -1;
};

struct Span {
  int64_t begin = 0, end = 0;  // now()
  int64_t track = -1;
  int32_t row = 0;        // 0: operations; network_row(); else lane + 1
  const char* name = "";  // never freed
  // Of an operation, from keep(): its plan, and what it ran on as members of a JSON object.
  const char* plan = nullptr;
  const char* means = nullptr;
  int32_t blocks = 0;         // thread blocks of its largest kernel; 0: none
  const char* nic = nullptr;  // of a network message: from keep()
  uint64_t operation = 0;     // its number in the communicator
  uint64_t bytes = 0;
  int32_t step = -1;
  int32_t from = -1, to = -1;  // peers
  uint64_t slice = 0;
};

// The row of one direction of a link to another host.
int32_t network_row(int peer, int channel, bool sends);

// Nanoseconds of the host's steady clock.
int64_t now();
void add(const Span& span);
// A copy of the text that is never freed, one per text.
const char* keep(const std::string& text);

}  // namespace weft::trace
