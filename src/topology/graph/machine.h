// The Machine: one directed graph of everything data can cross. GPUs, CPUs (NUMA nodes), switches
// (PCIe, NVSwitch, network) and NICs are nodes; links carry their effective bandwidth and latency.
// A shared uplink is a link like any other, so contention falls out of the graph. Plain data: it is
// discovered, read from files, merged, drawn and compared.
//
// Not every walk along links is a way for data: what a GPU hands to a NIC goes to the network and
// (with most NICs) not back into the host, and without peer-to-peer access data passes a CPU.
// flow_graph.h gives the graph in which every walk is allowed, for max-flow and routing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class NodeType : uint8_t { kGpu, kCpu, kSwitch, kNic };
enum class LinkType : uint8_t { kNvlink, kPcie, kXgmi, kSocket, kNetwork, kOther, kC2c };

struct Node {
  std::string id;  // unique within the machine
  NodeType type = NodeType::kGpu;
  int host = 0;       // -1: belongs to no host (a network switch)
  std::string model;  // what people call it, may be empty
  std::string pci;    // bus id, may be empty
  int numa = -1;      // NUMA node, -1 if unknown
  // A NIC's way to the network, each direction; what join() makes its links of. 0 for others.
  double gbps = 0, us = 0;
  // What else is known, by NCCL's attribute names (sm, gdr, link_speed, guid, p2p...).
  std::map<std::string, std::string> facts;
  bool operator==(const Node&) const = default;
};

// One direction; a cable is two of them.
struct Link {
  int from = 0, to = 0;  // indices of nodes
  LinkType type = LinkType::kOther;
  double gbps = 0;  // effective GB/s (1e9 bytes)
  double us = 0;    // latency
  int count = 1;    // NVLinks or xGMI links bundled into this one; gbps is their sum
  bool operator==(const Link&) const = default;
};

// Ranks are the gpu nodes in the order of `nodes`.
struct Machine {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<std::string> notes;  // what was assumed, replaced or left out, a line each
  bool operator==(const Machine&) const = default;
};

// Indices of the gpu nodes: rank r sits on gpus(machine)[r].
std::vector<int> gpus(const Machine& machine);
std::vector<int> nodes_of(const Machine& machine, NodeType type);
int count_hosts(const Machine& machine);

// Index of the node with this id, or -1.
int find_node(const Machine& machine, std::string_view id);

// A fact of a node, or "" where it is not known.
std::string_view fact(const Node& node, const std::string& name);

// Two links, there and back.
void connect(Machine& machine, int a, int b, LinkType type, double gbps, double us, int count = 1);

// The words of the file format: gpu, cpu, switch, nic; nvlink, pcie, xgmi, socket, network, c2c,
// other.
std::string_view name_of(NodeType type);
std::string_view name_of(LinkType type);

}  // namespace weft
