// Makes NIC writes to GPU memory visible to the GPU. A read through the same NIC pushes the earlier
// writes. Every rail in use has a queue pair that is connected to itself. One thread at a time.
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
    uint32_t open = 0;  // reads that have not completed
    bool used = false;
  };

  explicit Flush(std::span<const Port> rails);
  ~Flush();
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;

  // nullptr: too many in flight. Throws Error if a device refuses.
  // `rails`: those to flush, as bits.
  Request* start(const void* data, const Registration& registration, uint32_t rails);
  // True if all reads have completed. The request is then free. Throws Error if one failed.
  bool complete(Request& request);

 private:
  struct Loop;
  static constexpr uint32_t kRequests = net_abi::kMaxRequests;

  const std::span<const Port> rails_;
  std::vector<std::unique_ptr<Loop>> loops_;  // per rail, once it is used
  std::array<Request, kRequests> requests_;
};

}  // namespace weft::net_verbs
