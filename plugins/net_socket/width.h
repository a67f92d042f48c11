// How wide a connection over TCP is.
#pragma once

#include <cstdint>

#include "plugins/common/interfaces.h"
#include "src/base/config.h"

namespace weft::net_socket {

// How many sockets a connection gets, and how many threads of its own.
struct Width {
  uint16_t sockets = 1;
  int threads = 0;
  bool fixed = false;  // the user said so
  bool lends = true;   // see page_loan.h
};
Width choose_width(const Config& config, const net_common::Interface& interface);

}  // namespace weft::net_socket
