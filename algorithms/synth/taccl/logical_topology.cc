// See logical_topology.h.
#include "algorithms/synth/taccl/logical_topology.h"

#include <algorithm>
#include <map>

#include "algorithms/synth/taccl/logical_rules.h"
#include "src/base/error.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/routes.h"

namespace weft {
namespace {

int32_t add_resource(LogicalTopology& t, double beta_us) {
  t.resources.push_back({beta_us});
  return static_cast<int32_t>(t.resources.size()) - 1;
}

// GPUs of every host, in order; ranks are positions in gpus().
std::vector<std::vector<int>> ranks_by_host(const Machine& machine) {
  std::map<int, size_t> index;
  std::vector<std::vector<int>> result;
  const std::vector<int> nodes = gpus(machine);
  for (size_t rank = 0; rank < nodes.size(); rank++) {
    const int host = machine.nodes[static_cast<size_t>(nodes[rank])].host;
    const auto [it, added] = index.emplace(host, result.size());
    if (added) result.emplace_back();
    result[it->second].push_back(static_cast<int>(rank));
  }
  return result;
}

class OnMachine {
 public:
  OnMachine(const Machine& machine, const Sketch& sketch, double chunk_bytes, double message_us)
      : sketch_(sketch),
        bytes_(chunk_bytes),
        message_us_(message_us),
        everywhere_(flow_graph(machine).machine),
        inside_(everywhere_),
        t_(ranks_of_sketch(sketch, ranks_by_host(machine))) {
    // No path leaves a host and comes back.
    for (Link& link : inside_.links)
      if (link.type == LinkType::kNetwork) link.gbps = 0;
    resource_of_.assign(machine.links.size(), -1);
  }

  LogicalTopology run() {
    add_inside();
    add_between();
    add_symmetries(sketch_, t_);
    return std::move(t_);
  }

 private:
  LogicalLink cost(Routes& routes, int from, int to) const {
    LogicalLink link{from, to};
    double gbps = kWidest;
    for (const int32_t l : routes.between(from, to)) {
      const Link& physical = everywhere_.links[static_cast<size_t>(l)];
      link.path.push_back(l);
      link.alpha_us += physical.us;
      gbps = std::min(gbps, physical.gbps);
    }
    link.beta_us = bytes_ * 1e-3 / gbps;
    return link;
  }

  void keep(LogicalLink link) {
    for (const int32_t l : link.path) {
      int32_t& resource = resource_of_[static_cast<size_t>(l)];
      if (resource < 0)
        resource = add_resource(t_, bytes_ * 1e-3 / everywhere_.links[static_cast<size_t>(l)].gbps);
      link.resources.push_back(resource);
    }
    add_link(t_, std::move(link));
  }

  void add_inside() {
    Routes routes(inside_);
    for (const auto& host : t_.rank_at) {
      const size_t n = host.size();
      std::vector<std::vector<LogicalLink>> all(n, std::vector<LogicalLink>(n));
      for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
          if (a == b || planes(sketch_, static_cast<int>(a), static_cast<int>(b)) == 0) continue;
          all[a][b] = cost(routes, host[a], host[b]);
          if (all[a][b].path.empty() && sketch_.intranode == Sketch::Intranode::kSwitch)
            fail(ncclInvalidArgument,
                 "{}: intranode_sketch.switches puts GPUs {} and {} together, "
                 "but the machine has no way between them",
                 sketch_.name, a, b);
        }
      for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++)
          if (!all[a][b].path.empty() && !dominated(all, a, b)) keep(all[a][b]);
    }
  }

  // Whether two links in sequence are faster.
  bool dominated(const std::vector<std::vector<LogicalLink>>& all, size_t a, size_t b) const {
    if (sketch_.intranode == Sketch::Intranode::kSwitch) return false;
    const auto us = [](const LogicalLink& link) { return link.alpha_us + link.beta_us; };
    for (size_t c = 0; c < all.size(); c++) {
      const LogicalLink &first = all[a][c], &second = all[c][b];
      if (first.path.empty() || second.path.empty()) continue;
      if (us(first) + us(second) < us(all[a][b]) * (1 - 1e-9) &&
          std::max(first.beta_us, second.beta_us) < all[a][b].beta_us)
        return true;
    }
    return false;
  }

  void add_between() {
    if (t_.hosts == 1) return;
    Routes routes(everywhere_);
    const auto pairs = connections(sketch_, static_cast<int>(t_.rank_at[0].size()));
    for (size_t h = 0; h < t_.rank_at.size(); h++)
      for (size_t other = 0; other < t_.rank_at.size(); other++)
        for (const auto& [sender, receiver] : pairs) {
          if (h == other) continue;
          LogicalLink link = cost(routes, t_.rank_at[h][static_cast<size_t>(sender)],
                                  t_.rank_at[other][static_cast<size_t>(receiver)]);
          if (link.path.empty())
            fail(ncclInvalidArgument,
                 "{}: internode_sketch.internode_conn: the machine has no way "
                 "from GPU {} of host {} to GPU {} of host {}",
                 sketch_.name, sender, h, receiver, other);
          link.remote = true;
          link.busy_us = message_us_;
          keep(std::move(link));
        }
  }

  static constexpr double kWidest = 1e30;
  const Sketch& sketch_;
  const double bytes_, message_us_;
  Machine everywhere_, inside_;
  LogicalTopology t_;
  std::vector<int32_t> resource_of_;  // per link of the machine
};

}  // namespace

LogicalTopology logical_topology(const Machine& machine, const Sketch& sketch, double chunk_bytes,
                                 double message_us) {
  return OnMachine(machine, sketch, chunk_bytes, message_us).run();
}

LogicalTopology logical_topology(const TacclTopology& topology, const Sketch& sketch) {
  const auto gpus = static_cast<size_t>(topology.gpus);
  std::vector<std::vector<int>> rank_at(static_cast<size_t>(sketch.hosts), std::vector<int>(gpus));
  for (size_t h = 0; h < rank_at.size(); h++)
    for (size_t l = 0; l < gpus; l++) rank_at[h][l] = static_cast<int>(h * gpus + l);
  LogicalTopology t = ranks_of_sketch(sketch, std::move(rank_at));
  const bool switched = sketch.intranode == Sketch::Intranode::kSwitch;
  for (const auto& host : t.rank_at) {
    std::vector<int32_t> out(gpus, -1), in(gpus, -1);
    for (size_t a = 0; a < gpus; a++)
      for (size_t b = 0; b < gpus; b++) {
        const int count = planes(sketch, static_cast<int>(a), static_cast<int>(b));
        const double beta = topology.beta(static_cast<int>(a), static_cast<int>(b));
        if (a == b || count == 0) continue;
        if (beta == 0) {
          if (!switched) continue;
          fail(ncclInvalidArgument,
               "{}: intranode_sketch.switches puts GPUs {} and {} together, "
               "but {} has no link between them",
               sketch.name, a, b, topology.name);
        }
        LogicalLink link{host[a], host[b], false, topology.alpha, beta / count, topology.alpha};
        if (!switched) {
          link.resources = {add_resource(t, link.beta_us)};
        } else {
          for (auto& [ports, gpu] : {std::pair(&out, a), std::pair(&in, b)}) {
            if ((*ports)[gpu] < 0) (*ports)[gpu] = add_resource(t, link.beta_us);
            link.resources.push_back((*ports)[gpu]);
          }
        }
        add_link(t, std::move(link));
      }
  }
  if (t.hosts > 1) {
    if (topology.remote_beta == 0)
      fail(ncclInvalidArgument, "{}: remote_beta is missing, but {} has {} nodes", topology.name,
           sketch.name, sketch.hosts);
    const auto pairs = connections(sketch, topology.gpus);
    const int split = std::max(1, static_cast<int>(pairs.size()) / topology.nics);
    const double beta = topology.remote_beta * split;
    std::vector<int32_t> out(static_cast<size_t>(t.ranks), -1), in = out;
    for (size_t h = 0; h < t.rank_at.size(); h++)
      for (size_t other = 0; other < t.rank_at.size(); other++)
        for (const auto& [sender, receiver] : pairs) {
          if (h == other) continue;
          LogicalLink link{t.rank_at[h][static_cast<size_t>(sender)],
                           t.rank_at[other][static_cast<size_t>(receiver)],
                           true,
                           topology.remote_alpha,
                           beta,
                           topology.remote_alpha};
          if (t.hosts == 2) {
            link.resources = {add_resource(t, beta)};
          } else {
            for (auto& [ports, rank] : {std::pair(&out, link.from), std::pair(&in, link.to)}) {
              int32_t& port = (*ports)[static_cast<size_t>(rank)];
              if (port < 0) port = add_resource(t, beta);
              link.resources.push_back(port);
            }
          }
          add_link(t, std::move(link));
        }
  }
  add_symmetries(sketch, t);
  return t;
}

Machine turned_round(const Machine& machine) {
  Machine turned = machine;
  for (Link& link : turned.links) std::swap(link.from, link.to);
  return turned;
}

}  // namespace weft
