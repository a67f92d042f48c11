// See width.h.
#include "plugins/net_socket/width.h"

#include <algorithm>
#include <thread>

namespace weft::net_socket {

Width choose_width(const Config& config, const net_common::Interface& interface) {
  Width width;
  width.lends = config.lend_pages;
  if (config.socket_nthreads > 0 || config.nsocks_per_thread > 0) {
    const int threads = std::clamp(config.socket_nthreads, 1, 16);
    const int each = std::clamp(config.nsocks_per_thread, 1, 64 / threads);
    width.sockets = static_cast<uint16_t>(threads * each);
    width.threads = threads;
    width.fixed = true;
    return width;
  }
  // A second socket costs a core on both sides. With few cores, or over loopback, one socket is
  // best. Otherwise up to four are tried.
  const unsigned cores = std::thread::hardware_concurrency();
  if (interface.loopback || cores < 8) return width;
  width.sockets = static_cast<uint16_t>(std::min(4u, cores / 4));
  width.threads = width.sockets - 1;
  return width;
}

}  // namespace weft::net_socket
