// The device of a random run in host mode. See chaos_device.h.
#include "tests/faults/chaos_device.h"

#include <cstring>
#include <vector>

namespace weft::test {
namespace {

class HostDevice : public ChaosDevice {
 public:
  explicit HostDevice(size_t bytes) : memory_(bytes) {}
  char* memory() const override { return const_cast<char*>(memory_.data()); }
  cudaStream_t stream(int) const override { return nullptr; }
  void write(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void read(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  bool idle() override { return true; }
  ncclResult_t record(size_t graph, const std::function<ncclResult_t()>& fn) override {
    if (graphs_.size() <= graph) graphs_.resize(graph + 1);
    graphs_[graph] = fn;
    return ncclSuccess;
  }
  ncclResult_t replay(size_t graph, int) override { return graphs_.at(graph)(); }
  void forget_graphs() override { graphs_.clear(); }
  size_t free_bytes() const override { return 0; }

 private:
  std::vector<char> memory_;
  std::vector<std::function<ncclResult_t()>> graphs_;
};

}  // namespace

std::unique_ptr<ChaosDevice> make_host_device(size_t bytes) {
  return std::make_unique<HostDevice>(bytes);
}

}  // namespace weft::test
