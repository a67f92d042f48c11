// Who waits for whom across communicators. A thread that waits in a call tells so, and a thread for
// which it waits, and which waits itself, passes that on as a longer chain. A chain that comes back
// to one of its threads is a deadlock.
//
// Nothing else makes a chain: each wait in it needs a call that the next thread has not begun. That
// thread is in another call, and cannot begin one before that ends. So when a chain closes, all its
// waits last: each of them ends only after the next one. That is certain where no other thread of
// these processes could make the calls. Otherwise people are told, and nothing fails.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "src/exec/activity.h"

namespace weft {

// A thread that makes calls.
struct Caller {
  uint64_t process = 0, thread = 0;
  auto operator<=>(const Caller&) const = default;  // NOLINT(modernize-use-nullptr)
};

// One wait of a chain.
struct WaitHop {
  Caller caller;
  uint64_t communicator = 0;  // its public key
  uint64_t begun = 0;         // OperationState::begun: the same for one call
  uint32_t round = 0;         // how often the rank has told of a wait
  int32_t missing = -1;       // the rank of the communicator that has not begun the call
  bool alone = true;          // its process has no other thread that could make calls
  std::string who, what;      // the rank that waits, and its call
  bool operator==(const WaitHop&) const = default;
};

// Whether a rank's collective cannot end before another rank has begun it.
bool needs(const OperationState& state, int rank, int other);

// Whether no thread outside of a closed chain could end it.
bool is_certain(std::span<const WaitHop> hops);
// A closed chain in words: the same for every hop that it may begin with.
std::string deadlock_in_words(std::span<const WaitHop> hops);

}  // namespace weft
