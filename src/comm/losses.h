// What lossy encodings lose, kept until the next call with the same buffer (error feedback).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "src/comm/call.h"

namespace weft {

// For the thread that makes calls.
class Losses {
 public:
  explicit Losses(size_t most_bytes) : most_bytes_(most_bytes) {}

  // A float for every element of the call's input, then one for every element of its output, for
  // calls with this input address, count, type and operator. Zeros at first. If there is no room,
  // the ones that were unused for longest go, and start again from zero; a warning says so once.
  // They stay where they are until the next release(). Throws Error(ncclInvalidUsage) if a single
  // call needs more than the limit.
  float* of(const Call& call, size_t inputs, size_t outputs);
  // Frees what had to go. Called when no operation runs.
  void release() { gone_.clear(); }
  // All start again from zero: the setting has changed.
  void forget() {
    gone_.splice(gone_.end(), entries_);
    bytes_ = 0;
  }

  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    CollectiveKind kind;
    const void* input;
    size_t count, block;
    Reduction reduction;
    std::vector<float> values;

    bool is_of(const Call& call) const;
  };

  const size_t most_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // the latest first
  std::list<Entry> gone_;
  bool warned_ = false;
};

}  // namespace weft
