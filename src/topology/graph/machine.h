// The Machine: one directed graph of everything that data can cross. GPUs, CPUs (NUMA nodes),
// switches (PCIe, NVSwitch, network) and NICs are nodes. Links have an effective bandwidth and a
// latency. A shared uplink is a link like any other, so the graph shows contention. Plain data: it
// is discovered, read from files, merged, drawn and compared.
//
// Data cannot take every walk along links. Data from a GPU to a NIC goes to the network; most NICs
// cannot send it back into the host. Without peer-to-peer access data passes a CPU. flow_graph.h
// gives the graph in which every walk is allowed, for max-flow and routing.
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
  int host = 0;       // -1: of no host (a network switch)
  std::string model;  // the product's name, may be empty
  std::string pci;    // bus id, may be empty
  int numa = -1;      // NUMA node, -1 if unknown
  // A NIC's bandwidth and latency to the network, in each direction. join() makes its links from
  // them. 0 for other nodes.
  double gbps = 0, us = 0;
  // Other facts, by NCCL's attribute names (sm, gdr, link_speed, guid, p2p...).
  std::map<std::string, std::string> facts;
  bool operator==(const Node&) const = default;
};

// One direction; a cable is two links.
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
  std::vector<std::string> notes;  // what was assumed, replaced or left out, one line each
  bool operator==(const Machine&) const = default;
};

// Indices of the gpu nodes: rank r sits on gpus(machine)[r].
std::vector<int> gpus(const Machine& machine);
std::vector<int> nodes_of(const Machine& machine, NodeType type);
int count_hosts(const Machine& machine);

// Index of the node with this id, or -1.
int find_node(const Machine& machine, std::string_view id);

// A fact of a node, or "" if it is unknown.
std::string_view fact(const Node& node, const std::string& name);

// Adds two links, one in each direction.
void connect(Machine& machine, int a, int b, LinkType type, double gbps, double us, int count = 1);

// The names in the file format: gpu, cpu, switch, nic; nvlink, pcie, xgmi, socket, network, c2c,
// other.
std::string_view name_of(NodeType type);
std::string_view name_of(LinkType type);

}  // namespace weft
