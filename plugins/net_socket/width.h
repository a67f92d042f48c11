// The sockets and threads of a TCP connection.
#pragma once

#include <cstdint>

#include "plugins/common/interfaces.h"
#include "src/base/config.h"

namespace weft::net_socket {

// The number of sockets of a connection, and of its own threads.
struct Width {
  uint16_t sockets = 1;
  int threads = 0;
  bool fixed = false;  // the user set it
  bool lends = true;   // see page_loan.h
};
Width choose_width(const Config& config, const net_common::Interface& interface);

}  // namespace weft::net_socket
