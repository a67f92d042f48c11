// See verbs_library.h.
#include "plugins/net_verbs/verbs_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <mutex>

namespace weft::net_verbs {
namespace {

struct Loaded {
  VerbsLibrary functions{};
  bool complete = false;
  std::string why;
};

Loaded open_and_look_up() {
  Loaded loaded;
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    loaded.why = fmt::format(
        "no RDMA library here ({}): on Debian it is the package libibverbs1, with "
        "ibverbs-providers",
        error == nullptr ? "libibverbs.so.1" : error);
    return loaded;
  }
  const auto find = [&](auto& function, const char* name, bool needed = true) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && needed && loaded.why.empty())
      loaded.why = fmt::format("libibverbs.so.1 is too old: it lacks {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  VerbsLibrary& v = loaded.functions;
  find(v.fork_init, "ibv_fork_init");
  find(v.get_device_list, "ibv_get_device_list");
  find(v.free_device_list, "ibv_free_device_list");
  find(v.get_device_name, "ibv_get_device_name");
  find(v.open_device, "ibv_open_device");
  find(v.close_device, "ibv_close_device");
  find(v.query_device, "ibv_query_device");
  find(v.query_port, "ibv_query_port");
  find(v.get_async_event, "ibv_get_async_event");
  find(v.ack_async_event, "ibv_ack_async_event");
  find(v.alloc_pd, "ibv_alloc_pd");
  find(v.dealloc_pd, "ibv_dealloc_pd");
  find(v.reg_mr, "ibv_reg_mr");
  find(v.reg_mr_iova2, "ibv_reg_mr_iova2", false);
  find(v.reg_dmabuf_mr, "ibv_reg_dmabuf_mr", false);
  find(v.dereg_mr, "ibv_dereg_mr");
  find(v.create_comp_channel, "ibv_create_comp_channel");
  find(v.destroy_comp_channel, "ibv_destroy_comp_channel");
  find(v.create_cq, "ibv_create_cq");
  find(v.destroy_cq, "ibv_destroy_cq");
  find(v.get_cq_event, "ibv_get_cq_event");
  find(v.ack_cq_events, "ibv_ack_cq_events");
  find(v.create_qp, "ibv_create_qp");
  find(v.modify_qp, "ibv_modify_qp");
  find(v.destroy_qp, "ibv_destroy_qp");
  find(v.event_type_str, "ibv_event_type_str");
  find(v.wc_status_str, "ibv_wc_status_str");
  loaded.complete = loaded.why.empty();
  // After a fork, copy-on-write must not move registered memory away from the NIC.
  if (loaded.complete) v.fork_init();
  return loaded;
}

const Loaded& loaded_once() {
  static const Loaded loaded = open_and_look_up();
  return loaded;
}

}  // namespace

const VerbsLibrary* load_verbs(std::string& why) {
  const Loaded& loaded = loaded_once();
  why = loaded.why;
  return loaded.complete ? &loaded.functions : nullptr;
}

const VerbsLibrary& verbs() { return loaded_once().functions; }

}  // namespace weft::net_verbs
