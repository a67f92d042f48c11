// The Machine: one directed graph of everything data can cross. GPUs, CPUs (NUMA nodes), switches
// (PCIe, NVSwitch, network) and NICs are nodes; links carry their effective bandwidth and latency.
// A shared uplink is a link like any other, so contention falls out of the graph. Plain data: it is
// discovered, read from files, merged, drawn and compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

enum class NodeType : uint8_t { kGpu, kCpu, kSwitch, kNic };
enum class LinkType : uint8_t { kNvlink, kPcie, kXgmi, kSocket, kNetwork, kOther };

struct Node {
  std::string id;  // unique within the machine
  NodeType type = NodeType::kGpu;
  int host = 0;
  std::string model;  // what people call it, may be empty
  std::string pci;    // bus id, may be empty
  int numa = -1;      // NUMA node, -1 if unknown
  bool operator==(const Node&) const = default;
};

// One direction; a cable is two of them.
struct Link {
  int from = 0, to = 0;  // indices of nodes
  LinkType type = LinkType::kOther;
  double gbps = 0;  // effective GB/s (1e9 bytes)
  double us = 0;    // latency
  bool operator==(const Link&) const = default;
};

// Ranks are the gpu nodes in the order of `nodes`.
struct Machine {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Link> links;
  bool operator==(const Machine&) const = default;
};

// Indices of the gpu nodes: rank r sits on gpus(machine)[r].
std::vector<int> gpus(const Machine& machine);

}  // namespace weft
