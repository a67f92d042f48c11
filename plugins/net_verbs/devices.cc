// See devices.h.
#include "plugins/net_verbs/devices.h"

#include <deque>
#include <memory>
#include <mutex>

#include "plugins/common/errors.h"

namespace weft::net_verbs {
namespace {

using net_common::failed;

// Devices never move and are never removed.
struct Devices {
  std::mutex mutex;
  std::deque<Device> list;
  std::string why;  // why there is none
};

Devices& all_devices() {
  static Devices& devices = *[] {
    auto all = std::make_unique<Devices>();
    for (const Port& port : find_ports(config(), all->why)) {
      const int index = static_cast<int>(all->list.size());
      all->list.push_back({{port},
                           {index},
                           fmt::format("{}:{}", port.address.device, port.address.port),
                           static_cast<int>(port.address.speed_mbps)});
    }
    return all.release();  // connections of other threads may outlive static objects
  }();
  return devices;
}

}  // namespace

const Config& config() {
  static const Config value = Config::from_environment();
  return value;
}

const Device* find_device(int dev) {
  Devices& all = all_devices();
  const std::lock_guard lock(all.mutex);
  if (dev < 0 || static_cast<size_t>(dev) >= all.list.size()) {
    failed(ncclInvalidArgument, "there is no RDMA device {}", dev);
    return nullptr;
  }
  return &all.list[static_cast<size_t>(dev)];
}

// The devices that follow it come first, so that connections of several devices have different
// ones.
std::vector<Port> rails_for(const Device& device) {
  std::vector<Port> rails = device.rails;
  if (rails.size() > 1) return rails;
  Devices& all = all_devices();
  const std::lock_guard lock(all.mutex);
  const size_t count = all.list.size(), own = static_cast<size_t>(device.members.front());
  for (size_t d = 1; d < count && rails.size() < kMaxRails; d++) {
    const Device& other = all.list[(own + d) % count];
    if (other.rails.size() > 1 || other.rails[0].address.ethernet != rails[0].address.ethernet)
      continue;
    rails.push_back(other.rails[0]);
    rails.back().address.spare = 1;
  }
  return rails;
}

ncclResult_t start(net_abi::Logger log) {
  net_common::logger = log;
  Devices& all = all_devices();
  const std::lock_guard lock(all.mutex);
  if (all.list.empty()) return net_common::decline(ncclSystemError, all.why);
  for (const Device& device : all.list)
    if (device.rails.size() == 1) {
      const RailAddress& rail = device.rails[0].address;
      net_common::inform(fmt::format("{}, {}, {} Mb/s{}", describe(rail),
                                     rail.ethernet != 0 ? "RoCE" : "InfiniBand", rail.speed_mbps,
                                     rail.gid_count > 0 ? ", " + describe(rail.gids[0]) : ""));
    }
  return ncclSuccess;
}

int device_count() {
  Devices& all = all_devices();
  const std::lock_guard lock(all.mutex);
  return static_cast<int>(all.list.size());
}

ncclResult_t facts(int dev, DeviceFacts& facts) {
  const Device* device = find_device(dev);
  if (device == nullptr) return ncclInvalidArgument;
  const Port& first = device->rails.front();
  facts.name = device->name.c_str();
  if (!first.pci_path.empty()) facts.pci_path = first.pci_path.c_str();
  facts.guid = first.hca->guid();
  facts.pointers = net_abi::kHostPointer;
  bool dmabuf = true;
  for (const Port& rail : device->rails) dmabuf = dmabuf && rail.hca->has_dmabuf();
  if (has_peermem()) facts.pointers |= net_abi::kCudaPointer;
  if (dmabuf) facts.pointers |= net_abi::kDmaBuf;
  facts.speed_mbps = device->speed_mbps;
  facts.port = first.address.port;
  facts.members = device->members;
  return ncclSuccess;
}

ncclResult_t merge(const int* devs, int count, int* dev) {
  if (count < 1 || count > static_cast<int>(kMaxRails))
    return failed(ncclInvalidArgument, "{} devices cannot be joined: 1 to {} can", count,
                  kMaxRails);
  Device joined;
  for (int d = 0; d < count; d++) {
    const Device* part = find_device(devs[d]);
    if (part == nullptr) return ncclInvalidArgument;
    if (part->rails.size() != 1)
      return failed(ncclInvalidUsage, "{} is made of several devices already", part->name);
    joined.rails.push_back(part->rails[0]);
    joined.members.push_back(devs[d]);
    joined.name += (joined.name.empty() ? "" : "+") + part->name;
    joined.speed_mbps += part->speed_mbps;
  }
  Devices& all = all_devices();
  const std::lock_guard lock(all.mutex);
  for (size_t d = 0; d < all.list.size(); d++)
    if (all.list[d].members == joined.members) {
      *dev = static_cast<int>(d);
      return ncclSuccess;
    }
  *dev = static_cast<int>(all.list.size());
  all.list.push_back(std::move(joined));
  return ncclSuccess;
}

}  // namespace weft::net_verbs
