// See network.h.
#include "src/transport/network.h"

#include "src/base/error.h"

namespace weft {

NetComm& NetComm::operator=(NetComm&& other) noexcept {
  if (this == &other) return *this;
  close();
  network_ = std::move(other.network_);
  comm_ = std::exchange(other.comm_, nullptr);
  kind_ = other.kind_;
  registrations_ = std::move(other.registrations_);
  return *this;
}

std::vector<NetProperties> devices_of(Network& network) {
  std::vector<NetProperties> all;
  for (int device = 0; device < network.devices(); device++)
    all.push_back(network.properties(device));
  return all;
}

void* NetComm::reg(void* data, size_t size, net_abi::PointerKind kind) {
  void* registration = nullptr;
  const ncclResult_t code = network_->reg(comm_, data, size, kind, &registration);
  if (code != ncclSuccess)
    fail(code, "network {} cannot register {} bytes: {}", network_->name(), size,
         network_->reason());
  registrations_.push_back(registration);
  return registration;
}

void* NetComm::reg_gpu(void* data, size_t size, int dma_buf, int pointers) {
  if (dma_buf < 0 || (pointers & net_abi::kDmaBuf) == 0)
    return reg(data, size, net_abi::kCudaPointer);
  void* registration = nullptr;
  if (network_->reg_dma_buf(comm_, data, size, 0, dma_buf, &registration) != ncclSuccess) {
    if ((pointers & net_abi::kCudaPointer) != 0) return reg(data, size, net_abi::kCudaPointer);
    fail(ncclSystemError, "network {} cannot register {} bytes of a GPU: {}", network_->name(),
         size, network_->reason());
  }
  registrations_.push_back(registration);
  return registration;
}

void NetComm::dereg(void* registration) noexcept {
  std::erase(registrations_, registration);
  network_->dereg(comm_, registration);
}

void NetComm::close() noexcept {
  if (comm_ == nullptr) return;
  for (void* registration : registrations_) network_->dereg(comm_, registration);
  registrations_.clear();
  switch (kind_) {
    case Kind::kListen:
      network_->close_listen(comm_);
      break;
    case Kind::kSend:
      network_->close_send(comm_);
      break;
    case Kind::kReceive:
      network_->close_receive(comm_);
      break;
  }
  comm_ = nullptr;
}

}  // namespace weft
