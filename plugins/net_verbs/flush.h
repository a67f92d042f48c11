// Makes what NICs wrote into GPU memory visible to the GPU: a read through the same NIC pushes the
// writes before it. Every rail has a queue pair that is connected with itself. One thread at a
// time.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "plugins/net_verbs/hca.h"
#include "plugins/net_verbs/registration.h"
#include "src/transport/net_abi/common.h"

namespace weft::net_verbs {

class Flush {
 public:
  struct Request {
    Flush* flush = nullptr;
    uint32_t open = 0;  // reads that have not come back
    bool used = false;
  };

  // Throws Error.
  explicit Flush(std::span<const Port> rails);
  ~Flush();
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;

  // nullptr: too many in flight. Throws Error when a device refuses.
  Request* start(const void* data, const Registration& registration);
  // True when all reads are back; the request is free then. Throws Error when one failed.
  bool complete(Request& request);

 private:
  struct Loop;
  static constexpr uint32_t kRequests = net_abi::kMaxRequests;

  std::vector<Loop> loops_;  // per rail
  std::array<Request, kRequests> requests_;
};

}  // namespace weft::net_verbs
