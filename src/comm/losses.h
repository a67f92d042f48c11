// What lossy encodings lose, kept until the next call with the same buffer (error feedback).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "src/comm/call.h"

namespace weft {

// For the thread that makes calls.
class Losses {
 public:
  // `zeros`: memory for so many floats, all zero.
  using Zeros = std::function<std::shared_ptr<float>(size_t floats)>;
  Losses(size_t most_bytes, Zeros zeros) : most_bytes_(most_bytes), zeros_(std::move(zeros)) {}
  static std::shared_ptr<float> host_zeros(size_t floats);

  // A float for every element of the call's input, then one for every element of its output, for
  // calls with this input address, count, type and operator. Zeros at first. If there is no room,
  // the ones that were unused for longest go, and start again from zero; a warning says so once.
  // They stay where they are until the next release(). `captured`: a graph will use them at any
  // time, so they never go. Throws Error(ncclInvalidUsage) if a single call needs more than the
  // limit, or than graphs leave of it.
  float* of(const Call& call, size_t inputs, size_t outputs, bool captured = false);
  // Frees what had to go. Called when no operation runs.
  void release() {
    std::erase_if(gone_, [](const Entry& entry) { return !entry.captured; });
  }
  bool has_gone() const { return !gone_.empty(); }
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
    size_t bytes;
    std::shared_ptr<float> values;
    bool captured = false;

    bool is_of(const Call& call) const;
  };

  Entry* find(const Call& call);
  void make_room(size_t bytes);

  const size_t most_bytes_;
  const Zeros zeros_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // the latest first
  std::list<Entry> gone_;
  bool warned_ = false;
};

}  // namespace weft
