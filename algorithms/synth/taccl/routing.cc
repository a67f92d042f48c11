// See routing.h.
#include "algorithms/synth/taccl/routing.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/error.h"

namespace weft {
namespace {

using Term = LinearModel::Term;

// Weight of the sketch's wish for links beside the time, as in TACCL.
constexpr double kWish = 0.01;

class Builder {
 public:
  Builder(const TacclProblem& problem, const TacclRoutes& routes, double pipelined)
      : p_(problem), t_(problem.topology), routes_(routes), part_(pipelined) {}

  RoutingModel run() {
    find_horizon();
    add_columns();
    for (size_t i = 0; i < p_.leaders.size(); i++) {
      add_receptions(i);
      add_times(i);
    }
    add_loads();
    add_wishes();
    m_.start.resize(static_cast<size_t>(m_.linear.columns()));
    write_start();
    return std::move(m_);
  }

 private:
  double latency(const LogicalLink& link) const { return link.alpha_us + link.beta_us * part_; }
  const TacclPiece& piece(size_t leader) const {
    return p_.pieces[static_cast<size_t>(p_.leaders[leader])];
  }
  double busy(const LogicalLink& link, int32_t resource) const {
    return link.busy_us + t_.resources[static_cast<size_t>(resource)].beta_us;
  }

  // Arrivals along the routes, and their time in the relaxed model.
  void find_horizon() {
    std::vector<double> load(t_.resources.size(), 0.0);
    for (const auto& links : routes_)
      for (const int32_t l : links)
        for (const int32_t r : link(l).resources)
          time_us_ = std::max(time_us_, load[static_cast<size_t>(r)] += busy(link(l), r));
    for (size_t i = 0; i < p_.leaders.size(); i++) {
      std::vector<double> at(static_cast<size_t>(t_.ranks), 0.0);
      std::map<std::pair<int, int32_t>, double> port;
      for (const int32_t l : routes_[static_cast<size_t>(p_.leaders[i])]) {
        const LogicalLink& k = link(l);
        at[static_cast<size_t>(k.to)] = at[static_cast<size_t>(k.from)] + latency(k);
        const double out = port[{k.from, k.resources.front()}] += busy(k, k.resources.front());
        time_us_ = std::max(
            {time_us_, at[static_cast<size_t>(k.to)], at[static_cast<size_t>(k.from)] + out});
      }
      arrivals_.push_back(std::move(at));
    }
  }

  void add_columns() {
    m_.time_us = m_.linear.add_column(1, 0, LinearModel::kInfinity);
    for (size_t i = 0; i < p_.leaders.size(); i++) {
      auto& sent = m_.sent.emplace_back(t_.links.size(), -1);
      auto& arrival = m_.arrival_us.emplace_back(static_cast<size_t>(t_.ranks), -1);
      for (size_t l = 0; l < t_.links.size(); l++)
        if (p_.candidate(p_.leaders[i], static_cast<int32_t>(l))) sent[l] = m_.linear.add_binary();
      const std::vector<double> soonest = soonest_arrivals(i);
      for (size_t r = 0; r < soonest.size(); r++)
        if (p_.near[static_cast<size_t>(p_.leaders[i])][r] != 0) {
          arrival[r] = m_.linear.add_column(
              0, soonest[r],
              static_cast<int>(r) == piece(i).source ? 0.0 : time_us_ * 1.000001 + soonest[r]);
          arrivals_[i][r] = std::max(arrivals_[i][r], soonest[r]);
        }
    }
  }

  // The earliest arrival of a leader at every rank. It saves the solver branching.
  std::vector<double> soonest_arrivals(size_t i) const {
    std::vector<double> us(static_cast<size_t>(t_.ranks), 1e300);
    us[static_cast<size_t>(piece(i).source)] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t l = 0; l < t_.links.size(); l++) {
        const LogicalLink& k = t_.links[l];
        const double there = us[static_cast<size_t>(k.from)] + latency(k);
        if (m_.sent[i][l] < 0 || there >= us[static_cast<size_t>(k.to)]) continue;
        us[static_cast<size_t>(k.to)] = there;
        changed = true;
      }
    }
    return us;
  }

  // A rank that wants the piece gets it once. Another rank gets it at most once, and sends it only
  // if it got it.
  void add_receptions(size_t i) {
    std::vector<std::vector<Term>> in(static_cast<size_t>(t_.ranks));
    for (size_t l = 0; l < t_.links.size(); l++)
      if (m_.sent[i][l] >= 0) in[static_cast<size_t>(t_.links[l].to)].push_back({m_.sent[i][l], 1});
    std::vector<bool> wants(static_cast<size_t>(t_.ranks), false);
    for (const int r : piece(i).wanted) wants[static_cast<size_t>(r)] = true;
    for (size_t r = 0; r < in.size(); r++)
      if (!in[r].empty()) m_.linear.add_row(in[r], wants[r] ? 1 : 0, 1);
    // The piece must enter every host in which a rank wants it.
    std::map<int, std::vector<Term>> entries;
    for (const int r : piece(i).wanted)
      if (const int host = t_.host_of[static_cast<size_t>(r)];
          host != t_.host_of[static_cast<size_t>(piece(i).source)])
        entries[host];
    for (size_t l = 0; l < t_.links.size(); l++)
      if (m_.sent[i][l] >= 0 && t_.links[l].remote)
        entries.at(t_.host_of[static_cast<size_t>(t_.links[l].to)]).push_back({m_.sent[i][l], 1});
    for (auto& [host, terms] : entries) m_.linear.at_least(std::move(terms), 1);
    for (size_t l = 0; l < t_.links.size(); l++) {
      const int from = t_.links[l].from;
      if (m_.sent[i][l] < 0 || from == piece(i).source || wants[static_cast<size_t>(from)])
        continue;
      std::vector<Term> terms = in[static_cast<size_t>(from)];
      terms.push_back({m_.sent[i][l], -1});
      m_.linear.at_least(std::move(terms), 0);
    }
  }

  void add_times(size_t i) {
    std::map<std::pair<int, int32_t>, std::vector<Term>> ports;
    for (size_t l = 0; l < t_.links.size(); l++) {
      if (m_.sent[i][l] < 0) continue;
      const LogicalLink& k = t_.links[l];
      const double free = 2 * time_us_ * 1.000001 + latency(k);
      m_.linear.at_least({{m_.arrival_us[i][static_cast<size_t>(k.to)], 1},
                          {m_.arrival_us[i][static_cast<size_t>(k.from)], -1},
                          {m_.sent[i][l], -free}},
                         latency(k) - free);
      ports[{k.from, k.resources.front()}].push_back(
          {m_.sent[i][l], -busy(k, k.resources.front())});
    }
    for (const int r : piece(i).wanted)
      m_.linear.at_least({{m_.time_us, 1}, {m_.arrival_us[i][static_cast<size_t>(r)], -1}}, 0);
    // Copies that leave through one port follow each other.
    for (auto& [port, terms] : ports) {
      if (terms.size() < 2) continue;
      terms.push_back({m_.time_us, 1});
      terms.push_back({m_.arrival_us[i][static_cast<size_t>(port.first)], -1});
      m_.linear.at_least(std::move(terms), 0);
    }
  }

  // Visits (column, link) of all pieces; a leader's column decides for all alike pieces.
  template <typename Visit>
  void each_column(Visit visit) const {
    for (size_t i = 0; i < p_.leaders.size(); i++)
      for (size_t l = 0; l < t_.links.size(); l++)
        if (m_.sent[i][l] >= 0)
          for (const TacclSymmetry& s : p_.symmetries) visit(m_.sent[i][l], s.link[l]);
  }

  void add_loads() {
    std::vector<std::vector<Term>> rows(t_.resources.size());
    each_column([&](int32_t column, int32_t l) {
      for (const int32_t r : link(l).resources)
        rows[static_cast<size_t>(r)].push_back({column, -busy(link(l), r)});
    });
    std::set<std::vector<std::pair<int32_t, double>>> known;  // symmetry makes many rows equal
    for (size_t r = 0; r < rows.size(); r++) {
      if (rows[r].empty()) continue;
      std::map<int32_t, double> sums;
      for (const Term& term : rows[r]) sums[term.column] += term.factor;
      if (!known.insert({sums.begin(), sums.end()}).second) continue;
      rows[r].push_back({m_.time_us, 1});
      m_.linear.at_least(std::move(rows[r]), 0);
    }
  }

  // uc-min, uc-max: links of a host in use; minmax, maxmin: how busy they are.
  void add_wishes() {
    if (t_.intranode == Sketch::Intranode::kNone) return;
    std::map<int32_t, int32_t> orbit;  // link -> the first one like it
    std::map<int32_t, int> size;
    for (size_t l = 0; l < t_.links.size(); l++) {
      if (t_.links[l].remote) continue;
      int32_t first = static_cast<int32_t>(l);
      for (const TacclSymmetry& s : p_.symmetries) first = std::min(first, s.link[l]);
      orbit[static_cast<int32_t>(l)] = first;
      size[first]++;
    }
    std::map<int32_t, std::set<int32_t>> users;
    std::map<int32_t, std::map<int32_t, double>> busy_us;
    each_column([&](int32_t column, int32_t l) {
      const auto it = orbit.find(l);
      if (it == orbit.end()) return;
      users[it->second].insert(column);
      if (it->first == it->second) busy_us[l][column] += link(l).beta_us;
    });
    const bool few = t_.policy == Sketch::Policy::kFewLinks;
    if (t_.intranode == Sketch::Intranode::kSwitch) {
      const double weight =
          kWish * time_us_ / static_cast<double>(std::max<size_t>(1, orbit.size()));
      for (const auto& [first, columns] : users) {
        const int32_t used = m_.linear.add_column((few ? weight : -weight) * size[first], 0, 1);
        used_.emplace_back(used, std::vector<int32_t>(columns.begin(), columns.end()));
        std::vector<Term> sum{{used, -1}};
        for (const int32_t column : columns) {
          if (few) m_.linear.at_least({{used, 1}, {column, -1}}, 0);
          sum.push_back({column, 1});
        }
        if (!few) m_.linear.at_least(std::move(sum), 0);
      }
      return;
    }
    const bool most = t_.intranode == Sketch::Intranode::kMinMax;
    extreme_ = m_.linear.add_column(most ? kWish : -kWish, 0, LinearModel::kInfinity);
    for (const auto& [first, sums] : busy_us) {
      std::vector<Term> terms{{extreme_, most ? 1.0 : -1.0}};
      for (const auto& [column, us] : sums) terms.push_back({column, most ? -us : us});
      extreme_sums_.push_back(sums);
      m_.linear.at_least(std::move(terms), 0);
    }
  }

  void write_start() {
    auto& x = m_.start;
    for (size_t i = 0; i < p_.leaders.size(); i++) {
      for (const int32_t l : routes_[static_cast<size_t>(p_.leaders[i])])
        x[static_cast<size_t>(m_.sent[i][static_cast<size_t>(l)])] = 1;
      for (size_t r = 0; r < static_cast<size_t>(t_.ranks); r++)
        if (m_.arrival_us[i][r] >= 0) x[static_cast<size_t>(m_.arrival_us[i][r])] = arrivals_[i][r];
    }
    x[static_cast<size_t>(m_.time_us)] = time_us_;
    for (const auto& [used, columns] : used_) {
      double any = 0;
      for (const int32_t c : columns) any = std::max(any, x[static_cast<size_t>(c)]);
      x[static_cast<size_t>(used)] = any;
    }
    if (extreme_ < 0) return;
    const bool most = t_.intranode == Sketch::Intranode::kMinMax;
    double value = most ? 0 : 1e300;
    for (const auto& sums : extreme_sums_) {
      double us = 0;
      for (const auto& [column, part] : sums) us += part * x[static_cast<size_t>(column)];
      value = most ? std::max(value, us) : std::min(value, us);
    }
    x[static_cast<size_t>(extreme_)] = value;
  }

  const LogicalLink& link(int32_t l) const { return t_.links[static_cast<size_t>(l)]; }

  const TacclProblem& p_;
  const LogicalTopology& t_;
  const TacclRoutes& routes_;
  const double part_;
  RoutingModel m_;
  double time_us_ = 0;
  std::vector<std::vector<double>> arrivals_;  // [leader][rank] along the routes
  std::vector<std::pair<int32_t, std::vector<int32_t>>> used_;
  int32_t extreme_ = -1;
  std::vector<std::map<int32_t, double>> extreme_sums_;
};

}  // namespace

RoutingModel routing_model(const TacclProblem& problem, const TacclRoutes& routes,
                           double pipelined) {
  return Builder(problem, routes, pipelined).run();
}

TacclRoutes routes_of(const TacclProblem& problem, const RoutingModel& model,
                      const std::vector<double>& values) {
  const LogicalTopology& t = problem.topology;
  TacclRoutes routes(problem.pieces.size());
  for (size_t i = 0; i < problem.leaders.size(); i++) {
    const auto leader = static_cast<size_t>(problem.leaders[i]);
    const TacclPiece& piece = problem.pieces[leader];
    std::vector<int32_t> into(static_cast<size_t>(t.ranks), -1);
    for (size_t l = 0; l < t.links.size(); l++)
      if (const int32_t column = model.sent[i][l];
          column >= 0 && values[static_cast<size_t>(column)] > 0.5)
        into[static_cast<size_t>(t.links[l].to)] = static_cast<int32_t>(l);
    // Only links that lead to a rank that wants the piece; parents first.
    std::vector<bool> done(static_cast<size_t>(t.ranks), false);
    done[static_cast<size_t>(piece.source)] = true;
    for (const int rank : piece.wanted) {
      std::vector<int32_t> way;
      for (int at = rank; !done[static_cast<size_t>(at)];) {
        const int32_t l = into[static_cast<size_t>(at)];
        if (l < 0 || way.size() > into.size())
          fail(ncclInternalError, "{}: the solver's routes do not reach rank {}", t.name, rank);
        way.push_back(l);
        at = t.links[static_cast<size_t>(l)].from;
      }
      for (; !way.empty(); way.pop_back()) {
        done[static_cast<size_t>(t.links[static_cast<size_t>(way.back())].to)] = true;
        routes[leader].push_back(way.back());
      }
    }
    for (const TacclSymmetry& s : problem.symmetries) {
      auto& image = routes[static_cast<size_t>(s.piece[leader])];
      if (&image == &routes[leader]) continue;
      image.clear();
      for (const int32_t l : routes[leader]) image.push_back(s.link[static_cast<size_t>(l)]);
    }
  }
  return routes;
}

}  // namespace weft
