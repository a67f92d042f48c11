// See hwloc_view.h.
#include "src/topology/sources/hwloc_view.h"

#include <memory>

#ifdef WEFT_HAVE_HWLOC
#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>

#include "src/base/own_folder.h"
#endif

namespace weft {
#ifdef WEFT_HAVE_HWLOC
namespace {

constexpr const char* kHwloc = "libhwloc.so.15";

// The functions of hwloc that are used, from a library that is loaded at run time.
struct HwlocFunctions {
  decltype(&hwloc_get_api_version) get_api_version = nullptr;
  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_topology_set_all_types_filter) set_all_types_filter = nullptr;
  decltype(&hwloc_topology_set_type_filter) set_type_filter = nullptr;
  decltype(&hwloc_topology_set_io_types_filter) set_io_types_filter = nullptr;
  decltype(&hwloc_topology_set_components) set_components = nullptr;  // not before 2.1
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_export_xmlbuffer) export_xmlbuffer = nullptr;
  decltype(&hwloc_free_xmlbuffer) free_xmlbuffer = nullptr;

  // False if one is missing.
  bool find(void* library) {
    bool all = true;
    const auto get = [&]<typename Function>(Function& function, const char* name) {
      function = reinterpret_cast<Function>(dlsym(library, name));
      all = all && function != nullptr;
    };
    get(get_api_version, "hwloc_get_api_version");
    get(init, "hwloc_topology_init");
    get(destroy, "hwloc_topology_destroy");
    get(set_all_types_filter, "hwloc_topology_set_all_types_filter");
    get(set_type_filter, "hwloc_topology_set_type_filter");
    get(set_io_types_filter, "hwloc_topology_set_io_types_filter");
    get(load, "hwloc_topology_load");
    get(export_xmlbuffer, "hwloc_topology_export_xmlbuffer");
    get(free_xmlbuffer, "hwloc_free_xmlbuffer");
    set_components =
        reinterpret_cast<decltype(set_components)>(dlsym(library, "hwloc_topology_set_components"));
    return all;
  }
};

// Never closed: other threads may be in it.
void* open_library(const std::string& name) {
  if (const std::string own = own_folder(); !own.empty() && name == kHwloc) {
    const std::string folder = own + "weft/";  // of the package's libraries; there may be none
    // hwloc needs it. Where it is not carried, the system's is found.
    dlopen((folder + "libudev.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (void* carried = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return carried;
  }
  return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string view(const HwlocFunctions& hwloc, std::string& why_not) {
  hwloc_topology_t raw = nullptr;
  if (hwloc.init(&raw) != 0) {
    why_not = "hwloc cannot start";
    return "";
  }
  const std::unique_ptr<hwloc_topology, decltype(hwloc.destroy)> topology(raw, hwloc.destroy);
  // Caches and cores are not needed and cost time. Plugins that open devices do not belong in
  // another program's process.
  hwloc.set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc.set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc.set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc.set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc.set_type_filter(raw, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc.set_components != nullptr)
    for (const char* plugin : {"opencl", "cuda", "gl", "levelzero", "nvml", "rsmi"})
      hwloc.set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  char* buffer = nullptr;
  int size = 0;
  if (hwloc.load(raw) != 0 || hwloc.export_xmlbuffer(raw, &buffer, &size, 0) != 0 ||
      buffer == nullptr) {
    why_not = "hwloc cannot look at this machine";
    return "";
  }
  std::string text(buffer, size > 0 ? static_cast<size_t>(size) - 1 : 0);
  hwloc.free_xmlbuffer(raw, buffer);
  return text;
}

}  // namespace

std::string hwloc_view_of(const std::string& library, std::string& why_not) noexcept try {
  void* opened = open_library(library);
  if (opened == nullptr) {
    const char* error = dlerror();
    why_not = fmt::format("hwloc cannot be loaded ({})", error != nullptr ? error : library);
    return "";
  }
  HwlocFunctions hwloc;
  if (!hwloc.find(opened) || hwloc.get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
    why_not = fmt::format("{} is not hwloc {}", library, HWLOC_API_VERSION >> 16);
    return "";
  }
  return view(hwloc, why_not);
} catch (...) {
  return "";
}

std::string hwloc_view(std::string& why_not) noexcept { return hwloc_view_of(kHwloc, why_not); }

#else

std::string hwloc_view_of(const std::string&, std::string& why_not) noexcept {
  why_not = "built without hwloc";
  return "";
}

std::string hwloc_view(std::string& why_not) noexcept { return hwloc_view_of("", why_not); }

#endif
}  // namespace weft
