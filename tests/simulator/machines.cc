// See machines.h.
#include "tests/simulator/machines.h"

#include <fmt/format.h>

#include <stdexcept>

#include "tests/support/sampling.h"

namespace weft::test {

int add_node(Machine& machine, const std::string& id, NodeType type, int host) {
  Node node;
  node.id = id;
  node.type = type;
  node.host = host;
  machine.nodes.push_back(node);
  return static_cast<int>(machine.nodes.size()) - 1;
}

void add_link(Machine& machine, int from, int to, double gbps, double us) {
  machine.links.push_back({from, to, LinkType::kOther, gbps, us});
}

void add_cable(Machine& machine, int a, int b, double gbps, double us) {
  add_link(machine, a, b, gbps, us);
  add_link(machine, b, a, gbps, us);
}

Machine switched(const SwitchedShape& shape) {
  Machine m;
  m.name = "switched";
  for (int h = 0; h < shape.hosts; h++)
    for (int g = 0; g < shape.gpus; g++)
      add_node(m, fmt::format("h{}g{}", h, g), NodeType::kGpu, h);
  const int network = add_node(m, "network", NodeType::kSwitch, -1);
  for (int h = 0; h < shape.hosts; h++) {
    const int nvs = add_node(m, fmt::format("h{}nvs", h), NodeType::kSwitch, h);
    for (int g = 0; g < shape.gpus; g++)
      add_cable(m, h * shape.gpus + g, nvs, shape.switch_gbps, shape.switch_us);
    if (shape.hosts == 1) continue;
    for (int n = 0; n < shape.nics; n++) {
      const int nic = add_node(m, fmt::format("h{}nic{}", h, n), NodeType::kNic, h);
      add_cable(m, nic, network, shape.nic_gbps, shape.nic_us);
      const int share = shape.gpus / shape.nics;
      for (int g = n * share; g < (n + 1) * share; g++) {
        const int gpu = h * shape.gpus + g;
        if (!shape.sk1 || g % 2 == 1) add_link(m, gpu, nic, shape.nic_gbps);
        if (!shape.sk1 || g % 2 == 0) add_link(m, nic, gpu, shape.nic_gbps);
      }
    }
  }
  return m;
}

Machine circle(int n, double gbps, double us) {
  Machine m = line(n, gbps, us);
  m.name = "circle";
  if (n > 2) add_cable(m, n - 1, 0, gbps, us);
  return m;
}

Machine line(int n, double gbps, double us) {
  Machine m;
  m.name = "line";
  for (int g = 0; g < n; g++) add_node(m, fmt::format("g{}", g), NodeType::kGpu);
  for (int g = 0; g + 1 < n; g++) add_cable(m, g, g + 1, gbps, us);
  return m;
}

Machine mesh(int n, double gbps, double us) {
  Machine m;
  m.name = "mesh";
  for (int g = 0; g < n; g++) add_node(m, fmt::format("g{}", g), NodeType::kGpu);
  for (int a = 0; a < n; a++)
    for (int b = 0; b < a; b++) add_cable(m, a, b, gbps, us);
  return m;
}

Machine random_machine(int gpus, uint64_t seed) {
  uint64_t draws = 0;
  const auto draw = [&](uint64_t below) { return mix(seed, draws++) % below; };
  const auto gbps = [&] { return 0.5 * static_cast<double>(1 + draw(200)); };
  const auto us = [&] { return 0.1 * static_cast<double>(draw(30)); };
  Machine m;
  // Compilers evaluate arguments in different orders, and draws in the order they are made.
  const auto join = [&](int from, int to) {
    const double rate = gbps(), latency = us();
    add_link(m, from, to, rate, latency);
  };
  m.name = fmt::format("random {}", seed);
  for (int g = 0; g < gpus; g++) add_node(m, fmt::format("g{}", g), NodeType::kGpu);
  const int switches = 1 + static_cast<int>(draw(3));
  for (int s = 0; s < switches; s++) {
    const int node = add_node(m, fmt::format("s{}", s), NodeType::kSwitch);
    if (s == 0) continue;
    const int other = gpus + static_cast<int>(draw(static_cast<uint64_t>(s)));
    join(node, other);
    join(other, node);
  }
  for (int g = 0; g < gpus; g++) {
    const int node = gpus + static_cast<int>(draw(static_cast<uint64_t>(switches)));
    join(g, node);
    join(node, g);
    for (int other = 0; other < gpus; other++)
      if (other != g && draw(4) == 0) join(g, other);
  }
  return m;
}

Machine random_hub(int gpus, uint64_t seed) {
  uint64_t draws = 0;
  const auto gbps = [&](uint64_t least, uint64_t most) {
    return static_cast<double>(least + mix(seed, draws++) % (most - least + 1));
  };
  Machine m;
  m.name = fmt::format("random hub {}", seed);
  for (int g = 0; g < gpus; g++) add_node(m, fmt::format("g{}", g), NodeType::kGpu);
  const int up = add_node(m, "up", NodeType::kSwitch),
            down = add_node(m, "down", NodeType::kSwitch);
  add_link(m, up, down, gbps(1, 4), 1);
  for (int g = 0; g < gpus; g++) {
    add_link(m, g, up, gbps(5, 50), 1);
    add_link(m, down, g, gbps(5, 50), 1);
  }
  return m;
}

Machine without_link(Machine machine, int link) {
  const int a = machine.links[link].from, b = machine.links[link].to;
  std::erase_if(machine.links, [&](const Link& l) {
    return (l.from == a && l.to == b) || (l.from == b && l.to == a);
  });
  return machine;
}

Machine without_gpu(Machine machine, int rank) {
  const int node = gpus(machine)[rank];
  std::erase_if(machine.links, [&](const Link& l) { return l.from == node || l.to == node; });
  machine.nodes.erase(machine.nodes.begin() + node);
  for (Link& l : machine.links) {
    l.from -= l.from > node;
    l.to -= l.to > node;
  }
  return machine;
}

Machine with_half_nic(Machine machine, const std::string& nic) {
  const int node = find_node(machine, nic);
  if (node < 0) throw std::invalid_argument(nic + ": no such node");
  for (Link& l : machine.links)
    if (l.from == node || l.to == node) l.gbps /= 2;
  return machine;
}

}  // namespace weft::test
