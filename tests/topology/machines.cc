// See machines.h.
#include "tests/topology/machines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <queue>
#include <sstream>

#include "src/topology/graph/flow_graph.h"

namespace weft::test {
namespace {

class Flow {
 public:
  explicit Flow(size_t nodes) : out_(nodes) {}
  void add(int from, int to, double capacity) {
    out_[from].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    out_[to].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }
  // Shortest augmenting paths, level by level.
  double run(int from, int to) {
    double total = 0;
    while (levels(from, to)) {
      next_.assign(out_.size(), 0);
      while (const double more = push(from, to, 1e30)) total += more;
    }
    return total;
  }

 private:
  struct Edge {
    int to;
    double left;
  };
  bool levels(int from, int to) {
    level_.assign(out_.size(), -1);
    level_[from] = 0;
    std::queue<int> queue({from});
    for (; !queue.empty(); queue.pop())
      for (const int e : out_[queue.front()])
        if (edges_[e].left > 1e-9 && level_[edges_[e].to] < 0) {
          level_[edges_[e].to] = level_[queue.front()] + 1;
          queue.push(edges_[e].to);
        }
    return level_[to] >= 0;
  }
  double push(int node, int to, double most) {
    if (node == to) return most;
    for (size_t& i = next_[node]; i < out_[node].size(); i++) {
      const int e = out_[node][i];
      if (edges_[e].left <= 1e-9 || level_[edges_[e].to] != level_[node] + 1) continue;
      if (const double got = push(edges_[e].to, to, std::min(most, edges_[e].left)); got > 1e-12) {
        edges_[e].left -= got;
        edges_[e ^ 1].left += got;
        return got;
      }
    }
    return 0;
  }
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> out_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace

std::string shared_machine(const std::string& name) {
  const auto path = std::filesystem::path(WEFT_SOURCE_DIR) / "../shared/machines" / name;
  return std::filesystem::exists(path) ? path.string() : "";
}

void expect_text(const std::string& name, const std::string& text) {
  const std::string path =
      std::string(WEFT_SOURCE_DIR) + "/tests/topology/expected/" + name + ".txt";
  if (std::getenv("WEFT_UPDATE_EXPECTED") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << "differs from " << path;
}

double gather_bound(const Machine& machine) {
  const Machine graph = flow_graph(machine).machine;
  const int count = static_cast<int>(gpus(graph).size());
  const int source = static_cast<int>(graph.nodes.size());
  const auto reaches = [&](double rate) {
    for (int gpu = 0; gpu < count; gpu++) {
      Flow flow(graph.nodes.size() + 1);
      for (const auto& link : graph.links) flow.add(link.from, link.to, link.gbps);
      for (int each = 0; each < count; each++) flow.add(source, each, rate);
      if (flow.run(source, gpu) < count * rate * (1 - 1e-7)) return false;
    }
    return true;
  };
  double low = 0, high = 4000;
  while (high - low > 1e-4) {
    const double middle = (low + high) / 2;
    (reaches(middle) ? low : high) = middle;
  }
  return low * count;
}

}  // namespace weft::test
