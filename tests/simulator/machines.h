// Machines for tests: simple shapes, random ones, and broken ones. Real ones are in the catalogue.
#pragma once

#include <cstdint>
#include <string>

#include "src/topology/graph/machine.h"

namespace weft::test {

// Returns the node's number.
int add_node(Machine& machine, const std::string& id, NodeType type, int host = 0);
void add_link(Machine& machine, int from, int to, double gbps, double us = 0);
void add_cable(Machine& machine, int a, int b, double gbps, double us = 0);  // both ways

// GPUs of `hosts` hosts, each on its host's switch; NICs shared by neighbouring GPUs, all of them
// on one network switch that limits nothing.
struct SwitchedShape {
  int hosts = 1, gpus = 8, nics = 8;
  double switch_gbps = 300, nic_gbps = 25;
  double switch_us = 0, nic_us = 0;  // of a hop to the switch, and from NIC to network
  bool sk1 = false;                  // only even GPUs may receive from the NICs, only odd ones send
};
Machine switched(const SwitchedShape& shape);

// n GPUs in a circle of cables, in a line of cables, all cabled to all.
Machine circle(int n, double gbps, double us);
Machine line(int n, double gbps, double us);
Machine mesh(int n, double gbps, double us);

// Connected, with GPUs on switches and on cables, of figures that differ per link and direction.
Machine random_machine(int gpus, uint64_t seed);
// GPUs whose data all passes one thin link between switches, which do not copy.
Machine random_hub(int gpus, uint64_t seed);

// Machines that are not as they were built.
Machine without_link(Machine machine, int link);  // both directions
Machine without_gpu(Machine machine, int rank);
Machine with_half_nic(Machine machine, const std::string& nic);

}  // namespace weft::test
