// The RDMA devices of this machine: opened once, kept as long as the process. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/net_verbs/rails.h"
#include "plugins/net_verbs/region_cache.h"
#include "plugins/net_verbs/verbs_library.h"
#include "src/base/config.h"

namespace weft::net_verbs {

class Hca {
 public:
  // Throws Error.
  explicit Hca(ibv_device* device);
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  RegionCache& regions() { return regions_; }  // of pd()
  uint64_t guid() const { return guid_; }
  uint8_t port_count() const { return ports_; }
  bool has_dmabuf() const { return dmabuf_; }
  std::string folder() const { return "/sys/class/infiniband/" + name_; }

  // Reads and logs the device's events without blocking.
  void read_events();
  // Increases whenever a port goes up or down.
  uint32_t changes() const { return changes_.load(std::memory_order_acquire); }
  bool is_up(uint8_t port) const { return up_[port].load(std::memory_order_acquire); }
  void set_up(uint8_t port, bool up);
  // How often the port has come up.
  uint32_t times_up(uint8_t port) const { return times_up_[port].load(); }

 private:
  struct Close {
    void operator()(ibv_context* context) const { verbs().close_device(context); }
    void operator()(ibv_pd* pd) const { verbs().dealloc_pd(pd); }
  };
  std::string name_;
  std::unique_ptr<ibv_context, Close> context_;
  std::unique_ptr<ibv_pd, Close> pd_;
  RegionCache regions_;
  uint64_t guid_ = 0;
  uint8_t ports_ = 0;
  bool dmabuf_ = false;
  std::mutex reading_;
  std::atomic<uint32_t> changes_{0};
  std::vector<std::atomic<bool>> up_;
  std::vector<std::atomic<uint32_t>> times_up_;
};

// A usable port.
struct Port {
  std::shared_ptr<Hca> hca;
  RailAddress address;
  std::string pci_path;
};

// The rules of NCCL_IB_HCA: a list of names with an optional ":port". "^" in front excludes them.
// "=" in front compares whole names; otherwise they are prefixes. Empty: everything. Throws Error
// if a port is no number from 1 to 255.
bool hca_matches(const std::string& list, const std::string& name, int port);

// Active ports that pass NCCL_IB_HCA and have a usable address, fastest first. If empty, `why` says
// which ports exist and why they are unusable. A setting that cannot be read is a warning, and no
// port is used.
std::vector<Port> find_ports(const Config& config, std::string& why);

// Whether the driver lets NICs access GPU memory by address.
bool has_peermem();

}  // namespace weft::net_verbs
