// What the tests in the guest share: its two hosts, and how a rank becomes one of them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "tests/support/processes.h"

namespace weft::test {

using Environment = std::map<std::string, std::string>;

// Why the soft-RoCE devices of devices.sh are not here; empty: they are.
std::string guest_obstacle();

// A rank on the guest's host a (even ranks) or b, over the verbs plugin and nothing else, with
// these wires ("0", "1" or "01").
Environment verbs_host(int rank, const std::string& wires, const Environment& settings = {});

// Runs a command in the guest; true when it succeeds.
bool shell(const std::string& command);

// What an interface of the guest has sent so far.
uint64_t bytes_over(const std::string& interface);

// Takes wires down and up. Made before there is load: starting a program takes seconds then.
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
