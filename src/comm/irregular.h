// Exchanges whose blocks differ in length: alltoallv, and groups of sends and receives that are
// one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/comm/call.h"

namespace weft {

// What a rank sends to every rank, and receives from it.
struct Irregular {
  struct Block {
    void* data = nullptr;
    size_t count = 0;  // elements
  };
  std::vector<Block> sends, receives;
};

// The calls of all parts, in order: part p of every block. See parts_of().
std::vector<Call> parts_of_exchange(const Call& call, int parts, const uint32_t* ready,
                                    uint32_t* done);

// The sends and receives of an exchange, in order, without empty ones.
std::vector<Call> messages_of(const Call& exchange);

// The exchange that a group of calls is. nullptr: it is none. It is one if this rank has one send
// and one receive of the same type with every peer, at most one of each with itself, and no other
// call. Other ranks may see it otherwise, so it must send the messages that its calls would send.
std::shared_ptr<const Irregular> as_exchange(std::span<const Call* const> calls, int rank,
                                             int nranks);

}  // namespace weft
