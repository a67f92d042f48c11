// What this host has, in a few lines: a first look for people. (The Machine graph comes with the
// topology stage.)
#pragma once

#include <string>

namespace weft {

// Cores, NUMA nodes, caches, memory, PCI network and GPU devices as hwloc sees them.
std::string describe_host();

}  // namespace weft
