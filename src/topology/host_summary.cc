// See host_summary.h.
#include "src/topology/host_summary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <thread>

#ifdef WEFT_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace weft {

std::string describe_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string text = fmt::format("host {}\n", name.data());
#ifdef WEFT_HAVE_HWLOC
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return text + "  hwloc cannot look at this machine\n";
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      raw, hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) return text + "  hwloc cannot look at this machine\n";
  const auto count = [&](hwloc_obj_type_t type) {
    return std::max(0, hwloc_get_nbobjs_by_type(raw, type));
  };
  const char* model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(raw), "CPUModel");
  if (const hwloc_obj_t package = hwloc_get_obj_by_type(raw, HWLOC_OBJ_PACKAGE, 0);
      package != nullptr && model == nullptr)
    model = hwloc_obj_get_info_by_name(package, "CPUModel");
  text +=
      fmt::format("  {} package(s), {} NUMA node(s), {} core(s), {} hardware thread(s){}{}\n",
                  count(HWLOC_OBJ_PACKAGE), count(HWLOC_OBJ_NUMANODE), count(HWLOC_OBJ_CORE),
                  count(HWLOC_OBJ_PU), model != nullptr ? ", " : "", model != nullptr ? model : "");
  const hwloc_obj_t root = hwloc_get_root_obj(raw);
  text +=
      fmt::format("  memory {:.1f} GiB\n", static_cast<double>(root->total_memory) / (1u << 30));
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(raw, device)) != nullptr;) {
    const char* kind = "device";
    switch (device->attr->osdev.type) {
      case HWLOC_OBJ_OSDEV_NETWORK:
        kind = "network";
        break;
      case HWLOC_OBJ_OSDEV_OPENFABRICS:
        kind = "rdma";
        break;
      case HWLOC_OBJ_OSDEV_GPU:
      case HWLOC_OBJ_OSDEV_COPROC:
        kind = "gpu";
        break;
      case HWLOC_OBJ_OSDEV_BLOCK:
      case HWLOC_OBJ_OSDEV_DMA:
        continue;
    }
    text += fmt::format("  {} {}\n", kind, device->name);
  }
#else
  text += fmt::format("  {} hardware thread(s); built without hwloc, so no more is known\n",
                      std::thread::hardware_concurrency());
#endif
  return text;
}

}  // namespace weft
