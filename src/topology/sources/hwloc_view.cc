// See hwloc_view.h.
#include "src/topology/sources/hwloc_view.h"

#include <memory>

#ifdef WEFT_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace weft {

std::string hwloc_view(std::string& why_not) noexcept try {
#ifdef WEFT_HAVE_HWLOC
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    why_not = "hwloc cannot start";
    return "";
  }
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      raw, hwloc_topology_destroy);
  // Caches and cores are not needed and cost time. Plugins that open devices do not belong in
  // another program's process.
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
#ifdef HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST
  for (const char* plugin : {"opencl", "cuda", "gl", "levelzero", "nvml", "rsmi"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
#endif
  char* buffer = nullptr;
  int size = 0;
  if (hwloc_topology_load(raw) != 0 ||
      hwloc_topology_export_xmlbuffer(raw, &buffer, &size, 0) != 0 || buffer == nullptr) {
    why_not = "hwloc cannot look at this machine";
    return "";
  }
  std::string text(buffer, size > 0 ? static_cast<size_t>(size) - 1 : 0);
  hwloc_free_xmlbuffer(raw, buffer);
  return text;
#else
  why_not = "built without hwloc";
  return "";
#endif
} catch (...) {
  return "";
}

}  // namespace weft
