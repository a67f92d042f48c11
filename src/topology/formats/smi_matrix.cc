// See smi_matrix.h.
#include "src/topology/formats/smi_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <sstream>

#include "src/base/error.h"
#include "src/topology/sources/rates.h"

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

// Removes the colours and underlines that terminals add.
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

bool names_device(const std::string& word) {
  for (const char* prefix : {"GPU", "NIC", "mlx5_", "mlx4_"})
    if (const size_t size = std::string_view(prefix).size();
        word.compare(0, size, prefix) == 0 && word.size() > size &&
        std::isdigit(static_cast<unsigned char>(word[size])) != 0)
      return true;
  return false;
}

Matrix read_matrix(std::string_view text, const std::string& where) {
  Matrix matrix;
  std::istringstream lines(plain(text));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    number++;
    auto words = split(line);
    if (words.empty()) continue;
    if (matrix.names.empty()) {
      if (words.empty() || words[0] != "GPU0") continue;
      const auto end = std::find_if_not(words.begin(), words.end(), names_device);
      matrix.names.assign(words.begin(), end);
      if (matrix.names.size() > kMostDevices)
        fail(ncclInvalidArgument, "{}: line {}: more than {} devices", where, number, kMostDevices);
      continue;
    }
    const size_t count = matrix.names.size();
    if (matrix.values.size() < count && names_device(words[0]) && words[0].back() != ':') {
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

// Groups devices whose connection is one of these words.
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

class HostBuilder {
 public:
  explicit HostBuilder(const Matrix& matrix) : matrix_(matrix), count_(matrix.names.size()) {}

  Machine run() {
    machine_.notes.emplace_back(
        "from a matrix of nvidia-smi: PCIe is taken as generation 4 x16, NICs as 100 Gb/s, and "
        "NVLink as A100's");
    add_devices();
    add_pci();
    add_nvlinks();
    return std::move(machine_);
  }

 private:
  bool is_gpu(size_t i) const { return matrix_.names[i].compare(0, 3, "GPU") == 0; }

  int add(std::string id, NodeType type, int numa, const char* model) {
    while (find_node(machine_, id) >= 0) id += "'";
    Node node;
    node.id = std::move(id);
    node.type = type;
    node.numa = numa;
    node.model = model;
    machine_.nodes.push_back(std::move(node));
    return static_cast<int>(machine_.nodes.size()) - 1;
  }

  void add_devices() {
    for (size_t i = 0; i < count_; i++) {
      const auto name = matrix_.legend.find(matrix_.names[i]);
      std::string id =
          is_gpu(i) ? fmt::format("g{}", matrix_.names[i].substr(3)) : matrix_.names[i];
      if (!is_gpu(i) && name != matrix_.legend.end()) id = name->second;
      const int node = add(id, is_gpu(i) ? NodeType::kGpu : NodeType::kNic, matrix_.numa[i], "");
      if (is_gpu(i)) continue;
      machine_.nodes[node].gbps = network_gbps(100000);
      machine_.nodes[node].us = kInfinibandHopUs;
    }
  }

  // Devices that reach each other without crossing sockets share a CPU. NVLink hides NODE and PHB
  // in the matrix, so a row's NUMA column counts as well.
  std::vector<int> sockets() const {
    auto socket = groups(matrix_, {"PIX", "PXB", "PHB", "NODE"});
    for (size_t a = 0; a < count_; a++)
      for (size_t b = 0; b < a; b++)
        if (matrix_.numa[a] >= 0 && matrix_.numa[a] == matrix_.numa[b]) {
          const int from = socket[a], to = socket[b];
          std::replace(socket.begin(), socket.end(), from, to);
        }
    return socket;
  }

  void add_pci() {
    const auto socket = sockets();
    const auto outer = groups(matrix_, {"PIX", "PXB"}), inner = groups(matrix_, {"PIX"});
    std::map<int, int> cpus, switches;
    for (size_t i = 0; i < count_; i++) {
      if (!cpus.count(socket[i])) {
        const int number = static_cast<int>(cpus.size());
        cpus[socket[i]] = add(fmt::format("cpu{}", number), NodeType::kCpu,
                              matrix_.numa[i] >= 0 ? matrix_.numa[i] : number, "");
      }
      int above = cpus[socket[i]];
      const int numa = machine_.nodes[above].numa;
      machine_.nodes[i].numa = numa;
      // A group of several devices is a switch. PXB connects switches below another switch.
      for (const auto* level : {&outer, &inner}) {
        const auto size = std::count(level->begin(), level->end(), (*level)[i]);
        const bool same =
            level == &inner && std::count(outer.begin(), outer.end(), outer[i]) == size;
        if (size < 2 || same) continue;
        const int key = (*level)[i] * 2 + (level == &inner ? 1 : 0);
        if (!switches.count(key)) {
          const int number = static_cast<int>(switches.size());
          switches[key] =
              add(fmt::format("pcie{}", number), NodeType::kSwitch, numa, "PCIe switch");
          connect(machine_, above, switches[key], LinkType::kPcie, pcie_gbps(16, 16), kPcieHopUs);
        }
        above = switches[key];
      }
      connect(machine_, above, static_cast<int>(i), LinkType::kPcie, pcie_gbps(16, 16), kPcieHopUs);
    }
    for (auto a = cpus.begin(); a != cpus.end(); ++a)
      for (auto b = std::next(a); b != cpus.end(); ++b)
        connect(machine_, a->second, b->second, LinkType::kSocket, 10, kSocketUs);
  }

  void add_nvlinks() {
    std::vector<int> all = gpus(machine_);
    int least = 1 << 20, most = 0;
    const auto links = [&](int a, int b) { return nvlinks(matrix_.values[a][b]); };
    for (const int a : all) {
      for (const int b : all) {
        if (a == b) continue;
        least = std::min(least, links(a, b));
        most = std::max(most, links(a, b));
      }
    }
    const double rate = nvlink_gbps(80);
    // These are more links to all peers together than a GPU has, so they go through NVSwitch.
    if (all.size() > 2 && least == most && most >= 6) {
      const int fabric = add("nvs", NodeType::kSwitch, -1, "NVSwitch");
      for (const int a : all)
        connect(machine_, a, fabric, LinkType::kNvlink, most * rate, kNvswitchHopUs, most);
      return;
    }
    for (const int a : all)
      for (const int b : all)
        if (b > a && links(a, b) > 0)
          connect(machine_, a, b, LinkType::kNvlink, links(a, b) * rate, kNvlinkUs, links(a, b));
  }

  const Matrix& matrix_;
  const size_t count_;
  Machine machine_;
};

}  // namespace

bool is_smi_matrix(std::string_view text) {
  const std::string head = plain(text.substr(0, 4096));
  const auto first = head.find_first_not_of(" \t\r\n");
  return first != std::string::npos && head.compare(first, 4, "GPU0") == 0;
}

Machine machine_from_smi_matrix(std::string_view text, const std::string& where) {
  const Matrix matrix = read_matrix(text, where);
  return HostBuilder(matrix).run();
}

}  // namespace weft
