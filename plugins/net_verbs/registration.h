// Memory that the NICs of a connection may read and write: one registration per rail. Connections
// share the registrations of a device (region_cache.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plugins/net_verbs/hca.h"

namespace weft::net_verbs {

class Registration {
 public:
  // Throws Error. `relaxed`: the value of NCCL_IB_PCI_RELAXED_ORDERING, 0, 1 or 2.
  Registration(std::span<const Port> rails, void* data, size_t size, bool cuda, int relaxed);
  // GPU memory, given by a dmabuf descriptor.
  Registration(std::span<const Port> rails, void* data, size_t size, uint64_t offset, int fd,
               int relaxed);

  uint32_t local_key(uint32_t rail) const { return memory_[rail]->lkey; }
  uint32_t remote_key(uint32_t rail) const { return memory_[rail]->rkey; }
  bool is_cuda() const { return cuda_; }

 private:
  void add(const Port& rail, std::shared_ptr<ibv_mr> memory, size_t size);

  std::vector<std::shared_ptr<ibv_mr>> memory_;
  const bool cuda_;
};

}  // namespace weft::net_verbs
