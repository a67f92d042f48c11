// See hca.h.
#include "plugins/net_verbs/hca.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "plugins/common/errors.h"
#include "plugins/net_verbs/error_text.h"
#include "src/base/error.h"

namespace weft::net_verbs {
namespace {

using net_common::inform;

// Mb/s of a port, from its width code and the speed code of one lane.
uint32_t speed_of(const ibv_port_attr& port) {
  const auto width = [&] {
    switch (port.active_width) {
      case 2:
        return 4u;
      case 4:
        return 8u;
      case 8:
        return 12u;
      case 16:
        return 2u;
      default:
        return 1u;
    }
  }();
  switch (port.active_speed) {
    case 1:
      return width * 2500;
    case 2:
      return width * 5000;
    case 16:
      return width * 14000;
    case 32:
      return width * 25000;
    case 64:
      return width * 50000;
    case 128:
      return width * 100000;
    default:  // 4 and 8
      return width * 10000;
  }
}

const char* state_of(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "waiting for a subnet manager (is opensm running?)";
    case IBV_PORT_ARMED:
      return "not yet active";
    default:
      return "in an unknown state";
  }
}

// Empty text: usable.
std::string examine(const std::shared_ptr<Hca>& hca, uint8_t number, const Config& config,
                    Port& port) {
  ibv_port_attr attributes{};
  if (verbs().query_port(hca->context(), number, &attributes) != 0)
    return "it cannot be asked for its state";
  hca->set_up(number, attributes.state == IBV_PORT_ACTIVE);
  if (attributes.state != IBV_PORT_ACTIVE)
    return fmt::format("it is {}", state_of(attributes.state));
  RailAddress& address = port.address;
  std::strncpy(address.device, hca->name().c_str(), sizeof address.device - 1);
  address.port = number;
  address.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  address.mtu = static_cast<uint8_t>(attributes.active_mtu);
  address.lid = attributes.lid;
  address.speed_mbps = speed_of(attributes);
  const auto table = read_gids(hca->folder() + "/ports/" + std::to_string(number));
  std::vector<Gid> usable;
  if (address.ethernet != 0) {
    std::string why;
    usable = usable_gids(table, config, RailAddress::kGids, why);
    if (usable.empty()) return why;
  } else if (!table.empty()) {
    usable = {table[std::clamp<size_t>(static_cast<size_t>(std::max(0, config.ib_gid_index)), 0,
                                       table.size() - 1)]};
  }
  std::copy(usable.begin(), usable.end(), address.gids.begin());
  address.gid_count = static_cast<uint8_t>(usable.size());
  std::array<char, PATH_MAX> path{};
  if (realpath((hca->folder() + "/device").c_str(), path.data()) != nullptr)
    port.pci_path = path.data();
  port.hca = hca;
  return "";
}

bool can_read(const char* path) { return access(path, R_OK) == 0; }

}  // namespace

Hca::Hca(ibv_device* device)
    : name_(verbs().get_device_name(device)), context_(verbs().open_device(device)) {
  if (context_ == nullptr)
    fail_errno(errno, "{} cannot be opened (is /dev/infiniband visible here?)", name_);
  ibv_device_attr attributes{};
  if (const int error = verbs().query_device(context(), &attributes); error != 0)
    fail_errno(error, "{} does not describe itself", name_);
  pd_.reset(verbs().alloc_pd(context()));
  if (pd_ == nullptr) fail_errno(errno, "{} gives no protection domain", name_);
  guid_ = attributes.sys_image_guid;
  ports_ = attributes.phys_port_cnt;
  up_ = std::vector<std::atomic<bool>>(ports_ + 1u);
  times_up_ = std::vector<std::atomic<uint32_t>>(ports_ + 1u);
  fcntl(context()->async_fd, F_SETFL, fcntl(context()->async_fd, F_GETFL) | O_NONBLOCK);
  if (verbs().reg_dmabuf_mr != nullptr) {
    // Tries an invalid descriptor: a driver that supports the call complains about the descriptor.
    ibv_mr* none = verbs().reg_dmabuf_mr(pd(), 0, 1, 0, -1, 0);
    dmabuf_ = none == nullptr && errno != EOPNOTSUPP && errno != EPROTONOSUPPORT;
    if (none != nullptr) verbs().dereg_mr(none);
  }
}

void Hca::set_up(uint8_t port, bool up) {
  if (port < up_.size() && !up_[port].exchange(up) && up) times_up_[port]++;
}

void Hca::read_events() {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  ibv_async_event event{};
  while (verbs().get_async_event(context(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    const bool of_port = type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR;
    const auto port = static_cast<uint8_t>(of_port ? event.element.port_num : 0);
    verbs().ack_async_event(&event);
    const Explanation words = explain(type);
    if (words.what != nullptr)
      inform(fmt::format("{}{}: {}; usually {}", name_,
                         of_port ? " port " + std::to_string(port) : "", words.what, words.cause));
    if (of_port) set_up(port, type == IBV_EVENT_PORT_ACTIVE);
    if (type == IBV_EVENT_DEVICE_FATAL)
      for (auto& up : up_) up.store(false, std::memory_order_release);
    if (of_port || type == IBV_EVENT_DEVICE_FATAL) changes_.fetch_add(1, std::memory_order_release);
  }
}

bool hca_matches(const std::string& list, const std::string& name, int port) {
  size_t at = 0;
  const bool excluded = at < list.size() && list[at] == '^';
  if (excluded) at++;
  const bool exact = at < list.size() && list[at] == '=';
  if (exact) at++;
  if (at >= list.size()) return true;
  bool listed = false;
  while (at <= list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string entry = list.substr(at, end - at);
    const size_t colon = entry.find(':');
    const std::string wanted = entry.substr(0, colon);
    std::optional<int> wanted_port;
    if (colon != std::string::npos) {
      wanted_port = plain_number(entry.substr(colon + 1), 1, UINT8_MAX);
      if (!wanted_port)
        fail(ncclInvalidUsage, "NCCL_IB_HCA={}: {} names no port: DEVICE:PORT, as mlx5_0:1", list,
             entry);
    }
    const bool name_fits = exact ? name == wanted : name.rfind(wanted, 0) == 0;
    if (!wanted.empty() && name_fits && (!wanted_port || *wanted_port == port)) listed = true;
    at = end + 1;
  }
  return listed != excluded;
}

// The text of the error in NCCL_IB_HCA or NCCL_IB_ADDR_RANGE, if there is one. Without this the
// devices would be passed over one by one, and nobody warned.
std::string unreadable_setting(const Config& config) {
  try {
    std::string unused;
    hca_matches(config.ib_hca, "", 0);
    usable_gids({}, config, 0, unused);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<Port> find_ports(const Config& config, std::string& why) {
  std::vector<Port> ports;
  if (load_verbs(why) == nullptr) return ports;
  if (const std::string wrong = unreadable_setting(config); !wrong.empty()) {
    net_common::report(ncclInvalidUsage, wrong);
    why = wrong;
    return ports;
  }
  int count = 0;
  ibv_device** list = verbs().get_device_list(&count);
  if (list == nullptr || count == 0) {
    if (list != nullptr) verbs().free_device_list(list);
    why =
        "there is no RDMA device on this machine (ibv_devices lists none; in a container, is "
        "/dev/infiniband passed in?)";
    return ports;
  }
  why.clear();
  const auto pass_over = [&](const std::string& what, const std::string& reason) {
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", what, reason);
  };
  for (int d = 0; d < count; d++) {
    try {
      const auto hca = std::make_shared<Hca>(list[d]);
      for (unsigned p = 1; p <= hca->port_count(); p++) {
        const auto number = static_cast<uint8_t>(p);
        const std::string label = fmt::format("{} port {}", hca->name(), p);
        if (!hca_matches(config.ib_hca, hca->name(), static_cast<int>(p))) {
          pass_over(label, "NCCL_IB_HCA leaves it out");
          continue;
        }
        Port port;
        const std::string obstacle = examine(hca, number, config, port);
        if (!obstacle.empty()) {
          pass_over(label, obstacle);
          inform(fmt::format("{} not used: {}", label, obstacle));
          continue;
        }
        ports.push_back(std::move(port));
      }
    } catch (const Error& error) {
      pass_over(verbs().get_device_name(list[d]), error.what());
    }
  }
  verbs().free_device_list(list);
  std::stable_sort(ports.begin(), ports.end(), [](const Port& a, const Port& b) {
    return a.address.speed_mbps > b.address.speed_mbps;
  });
  if (ports.empty()) why = "no RDMA port can be used: " + why;
  return ports;
}

bool has_peermem() {
  return can_read("/sys/kernel/mm/memory_peers/nv_mem/version") ||
         can_read("/sys/kernel/mm/memory_peers/nv_mem_nc/version") ||
         can_read("/sys/module/nvidia_peermem/version");
}

}  // namespace weft::net_verbs
