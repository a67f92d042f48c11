// Memory that the NICs of a connection may read and write: one registration per rail. That of a
// spare rail is made when the rail is used. Connections share the registrations of a device
// (region_cache.h). One thread at a time.
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

  // Throw Error if a spare rail does not take the memory.
  uint32_t local_key(uint32_t rail) const { return on(rail).lkey; }
  uint32_t remote_key(uint32_t rail) const { return on(rail).rkey; }
  bool is_cuda() const { return cuda_; }

 private:
  void register_rails();
  const ibv_mr& on(uint32_t rail) const;
  std::shared_ptr<const Region> by_address(const Port& rail) const;
  std::shared_ptr<const Region> by_descriptor(const Port& rail) const;

  const std::span<const Port> rails_;
  void* const data_;
  const size_t size_;
  const uint64_t offset_ = 0;
  int given_ = -1;  // the descriptor, during construction only
  const int relaxed_;
  const bool cuda_, described_;
  mutable std::vector<std::shared_ptr<const Region>> memory_;  // by rail
};

}  // namespace weft::net_verbs
