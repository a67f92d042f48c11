// Shared by the tests in the guest: its two hosts, and the environment of a rank on either host.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "tests/support/processes.h"

namespace weft::test {

using Environment = std::map<std::string, std::string>;

// Why the soft-RoCE devices of devices.sh are missing. Empty if they are there.
std::string guest_obstacle();

// The environment of a rank on the guest's host a (even ranks) or b. It uses only the verbs plugin,
// over these links ("0", "1" or "01").
Environment verbs_host(int rank, const std::string& wires, const Environment& settings = {});

// Runs a command in the guest. Returns true if it succeeds.
bool shell(const std::string& command);

// The bytes that an interface of the guest has sent so far.
uint64_t bytes_over(const std::string& interface);

// Takes links down and up. Make it before there is load: starting a program then takes seconds.
class Wires {
 public:
  Wires();
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;
  void down(int wire);
  void up(int wire);

 private:
  std::FILE* commands_;
};

}  // namespace weft::test
