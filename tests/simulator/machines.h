// Machines for tests: simple, random and broken ones. The catalogue has real machines.
#pragma once

#include <cstdint>
#include <string>

#include "src/topology/graph/machine.h"

namespace weft::test {

// Returns the node's number.
int add_node(Machine& machine, const std::string& id, NodeType type, int host = 0);
void add_link(Machine& machine, int from, int to, double gbps, double us = 0);
void add_cable(Machine& machine, int a, int b, double gbps, double us = 0);  // both ways

// GPUs of `hosts` hosts, each on its host's switch. Neighbouring GPUs share a NIC. All NICs are on
// one network switch that limits nothing.
struct SwitchedShape {
  int hosts = 1, gpus = 8, nics = 8;
  double switch_gbps = 300, nic_gbps = 25;
  double switch_us = 0, nic_us = 0;  // per hop to the switch, and from NIC to network
  bool sk1 = false;                  // only even GPUs may receive from the NICs, only odd ones send
};
Machine switched(const SwitchedShape& shape);

// n GPUs connected by cables: in a circle, in a line, all to all.
Machine circle(int n, double gbps, double us);
Machine line(int n, double gbps, double us);
Machine mesh(int n, double gbps, double us);

// A connected machine with GPUs on switches and on cables. Rates differ per link and direction.
Machine random_machine(int gpus, uint64_t seed);
// All data of the GPUs passes one slow link between switches, which do not copy.
Machine random_hub(int gpus, uint64_t seed);

// Machines with a fault.
Machine without_link(Machine machine, int link);  // both directions
Machine without_gpu(Machine machine, int rank);
Machine with_half_nic(Machine machine, const std::string& nic);

}  // namespace weft::test
