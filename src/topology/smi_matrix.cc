// See smi_matrix.h.
#include "src/topology/smi_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <sstream>

#include "src/base/error.h"
#include "src/topology/rates.h"

namespace weft {
namespace {

constexpr size_t kMostDevices = 512;

struct Matrix {
  std::vector<std::string> names;                // GPU0..., NIC0...
  std::vector<std::vector<std::string>> values;  // X, NV4, PIX, PXB, PHB, NODE, SYS
  std::vector<int> numa;                         // per row, -1 unknown
  std::map<std::string, std::string> legend;     // NIC0 is mlx5_0
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Terminals colour and underline the heading.
std::string plain(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') i++;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_device(const std::string& word) {
  for (const char* prefix : {"GPU", "NIC", "mlx5_", "mlx4_"})
    if (const size_t size = std::string_view(prefix).size();
        word.compare(0, size, prefix) == 0 && word.size() > size &&
        std::isdigit(static_cast<unsigned char>(word[size])) != 0)
      return true;
  return false;
}

Matrix read(std::string_view text, const std::string& where) {
  Matrix matrix;
  std::istringstream lines(plain(text));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    number++;
    auto words = split(line);
    if (words.empty()) continue;
    if (matrix.names.empty()) {
      if (words.empty() || words[0] != "GPU0") continue;
      const auto end = std::find_if_not(words.begin(), words.end(), is_device);
      matrix.names.assign(words.begin(), end);
      if (matrix.names.size() > kMostDevices)
        fail(ncclInvalidArgument, "{}: line {}: more than {} devices", where, number, kMostDevices);
      continue;
    }
    const size_t count = matrix.names.size();
    if (matrix.values.size() < count && is_device(words[0]) && words[0].back() != ':') {
      if (words[0] != matrix.names[matrix.values.size()])
        fail(ncclInvalidArgument, "{}: line {}: the row of {} is expected, not of {}", where,
             number, matrix.names[matrix.values.size()], words[0].substr(0, 40));
      if (words.size() < count + 1)
        fail(ncclInvalidArgument, "{}: line {}: {} columns are expected, here are {}", where,
             number, count, words.size() - 1);
      matrix.values.emplace_back(words.begin() + 1, words.begin() + 1 + static_cast<long>(count));
      // CPU affinity, then NUMA affinity.
      int numa = -1;
      if (words.size() > count + 2 &&
          words[count + 2].find_first_not_of("0123456789") == words[0].npos &&
          words[count + 2].size() < 5)
        numa = std::stoi(words[count + 2]);
      matrix.numa.push_back(numa);
    } else if (words.size() == 2 && words[0].size() > 1 && words[0].back() == ':') {
      matrix.legend[words[0].substr(0, words[0].size() - 1)] = words[1];
    }
  }
  if (matrix.names.empty() || matrix.values.size() != matrix.names.size())
    fail(ncclInvalidArgument, "{}: the matrix has {} rows, but its heading names {} devices", where,
         matrix.values.size(), matrix.names.size());
  return matrix;
}

// Groups devices that reach each other by one of these words.
std::vector<int> groups(const Matrix& matrix, std::initializer_list<const char*> words) {
  std::vector<int> group(matrix.names.size());
  std::iota(group.begin(), group.end(), 0);
  for (size_t a = 0; a < group.size(); a++)
    for (size_t b = 0; b < a; b++)
      for (const char* word : words)
        if (matrix.values[a][b] == word) {
          const int from = group[a], to = group[b];
          std::replace(group.begin(), group.end(), from, to);
        }
  return group;
}

int nvlinks(const std::string& word) {
  if (word.size() < 3 || word.size() > 5 || word.compare(0, 2, "NV") != 0) return 0;
  return word.find_first_not_of("0123456789", 2) == word.npos ? std::stoi(word.substr(2)) : 0;
}

}  // namespace

bool is_smi_matrix(std::string_view text) {
  const std::string head = plain(text.substr(0, 4096));
  const auto first = head.find_first_not_of(" \t\r\n");
  return first != std::string::npos && head.compare(first, 4, "GPU0") == 0;
}

Machine machine_from_smi_matrix(std::string_view text, const std::string& where) {
  const Matrix matrix = read(text, where);
  Machine machine;
  machine.notes.emplace_back(
      "from a matrix of nvidia-smi: PCIe is taken as generation 4 x16, NICs as 100 Gb/s, and "
      "NVLink as A100's");
  const size_t count = matrix.names.size();
  const auto is_gpu = [&](size_t i) { return matrix.names[i].compare(0, 3, "GPU") == 0; };
  for (size_t i = 0; i < count; i++) {
    Node node;
    const auto name = matrix.legend.find(matrix.names[i]);
    node.id = is_gpu(i) ? fmt::format("g{}", matrix.names[i].substr(3))
                        : (name == matrix.legend.end() ? matrix.names[i] : name->second);
    if (find_node(machine, node.id) >= 0) node.id = fmt::format("{}.{}", node.id, i);
    node.type = is_gpu(i) ? NodeType::kGpu : NodeType::kNic;
    if (!is_gpu(i)) {
      node.gbps = network_gbps(100000);
      node.us = kInfinibandHopUs;
    }
    machine.nodes.push_back(std::move(node));
  }
  const auto add = [&](std::string id, NodeType type, int numa, const char* model) {
    Node node;
    node.id = std::move(id);
    node.type = type;
    node.numa = numa;
    node.model = model;
    machine.nodes.push_back(std::move(node));
    return static_cast<int>(machine.nodes.size()) - 1;
  };
  // Devices that reach each other without crossing sockets share a CPU. The matrix says NODE and
  // PHB only where no better way (NVLink) hides it, so a row's NUMA column counts as well.
  auto socket = groups(matrix, {"PIX", "PXB", "PHB", "NODE"});
  for (size_t a = 0; a < count; a++)
    for (size_t b = 0; b < a; b++)
      if (matrix.numa[a] >= 0 && matrix.numa[a] == matrix.numa[b]) {
        const int from = socket[a], to = socket[b];
        std::replace(socket.begin(), socket.end(), from, to);
      }
  const auto outer = groups(matrix, {"PIX", "PXB"});
  const auto inner = groups(matrix, {"PIX"});
  std::map<int, int> cpus, switches;
  for (size_t i = 0; i < count; i++) {
    auto& cpu = cpus.try_emplace(socket[i], -1).first->second;
    if (cpu < 0) {
      const int number = static_cast<int>(cpus.size()) - 1;
      cpu = add(fmt::format("cpu{}", number), NodeType::kCpu,
                matrix.numa[i] >= 0 ? matrix.numa[i] : number, "");
    }
    machine.nodes[i].numa = machine.nodes[cpu].numa;
    int above = cpu;
    // A group of several devices is a switch; PXB joins switches below another one.
    int last = -1;
    for (const auto* level : {&outer, &inner}) {
      const int group = (*level)[i];
      const auto size = std::count(level->begin(), level->end(), group);
      if (size < 2 || (level == &inner && std::count(outer.begin(), outer.end(), outer[i]) == size))
        continue;
      const int key = group * 2 + (level == &inner ? 1 : 0);
      if (!switches.count(key)) {
        switches[key] = add(fmt::format("pcie{}", switches.size()), NodeType::kSwitch,
                            machine.nodes[cpu].numa, "PCIe switch");
        connect(machine, above, switches[key], LinkType::kPcie, pcie_gbps(16, 16), kPcieHopUs);
      }
      above = last = switches[key];
    }
    connect(machine, above, static_cast<int>(i), LinkType::kPcie, pcie_gbps(16, 16), kPcieHopUs);
  }
  for (auto a = cpus.begin(); a != cpus.end(); ++a)
    for (auto b = std::next(a); b != cpus.end(); ++b)
      connect(machine, a->second, b->second, LinkType::kSocket, 10, kSocketUs);
  // More links to all others together than to one: they go through NVSwitch.
  std::vector<size_t> all;
  for (size_t i = 0; i < count; i++)
    if (is_gpu(i)) all.push_back(i);
  int least = 1 << 20, most = 0;
  for (const size_t a : all)
    for (const size_t b : all)
      if (a != b) {
        least = std::min(least, nvlinks(matrix.values[a][b]));
        most = std::max(most, nvlinks(matrix.values[a][b]));
      }
  const double rate = nvlink_gbps(80);
  if (all.size() > 2 && least == most && most >= 6) {
    const int fabric = add("nvs", NodeType::kSwitch, -1, "NVSwitch");
    for (const size_t a : all)
      connect(machine, static_cast<int>(a), fabric, LinkType::kNvlink, most * rate, kNvswitchHopUs,
              most);
  } else {
    for (const size_t a : all)
      for (const size_t b : all)
        if (const int links = nvlinks(matrix.values[a][b]); b > a && links > 0)
          connect(machine, static_cast<int>(a), static_cast<int>(b), LinkType::kNvlink,
                  links * rate, kNvlinkUs, links);
  }
  return machine;
}

}  // namespace weft
