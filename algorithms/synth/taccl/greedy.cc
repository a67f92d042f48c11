// See greedy.h.
#include "algorithms/synth/taccl/greedy.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr double kNotYet = 1e300;

class Greedy {
 public:
  Greedy(const TacclProblem& problem, double pipelined)
      : p_(problem), t_(problem.topology), part_(pipelined), free_us_(t_.resources.size(), 0.0) {
    const auto n = static_cast<size_t>(t_.ranks);
    for (const TacclPiece& piece : p_.pieces) {
      has_us_.emplace_back(n, kNotYet);
      has_us_.back()[static_cast<size_t>(piece.source)] = 0;
      missing_.push_back(piece.wanted);
      hops_left_.emplace_back();
      for (const int rank : piece.wanted)
        hops_left_.back().push_back(hops(piece, piece.source, rank));
    }
    routes_.resize(p_.pieces.size());
  }

  TacclRoutes run() {
    for (const int32_t piece : p_.leaders)
      offer(piece, p_.pieces[static_cast<size_t>(piece)].source);
    while (!queue_.empty()) {
      const Offer offered = queue_.top();
      queue_.pop();
      const auto [arrival, gain, turn, piece, link] = offered;
      const Offer now = make_offer(piece, link);
      if (std::get<1>(now) == 0) continue;
      if (offered < now) {  // worse than when it was queued
        queue_.push(now);
        continue;
      }
      for (const TacclSymmetry& s : p_.symmetries)
        send(s.piece[static_cast<size_t>(piece)], s.link[static_cast<size_t>(link)]);
      offer(piece, t_.links[static_cast<size_t>(link)].to);
    }
    for (const auto& missing : missing_)
      if (!missing.empty()) fail(ncclInternalError, "{}: a piece got stuck", t_.name);
    return std::move(routes_);
  }

 private:
  // Arrival, minus gain, distance (so that ranks do not all begin with the same peer), piece, link.
  using Offer = std::tuple<double, int, int, int32_t, int32_t>;

  int hops(const TacclPiece& piece, int from, int to) const {
    return p_.rules[static_cast<size_t>(piece.rule)]
        .hops[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }

  // Hops saved for the ranks that still want the piece if `rank` has it.
  int gain(int32_t piece, int rank) const {
    const auto i = static_cast<size_t>(piece);
    if (has_us_[i][static_cast<size_t>(rank)] < kNotYet) return 0;
    int sum = 0;
    for (size_t k = 0; k < missing_[i].size(); k++)
      sum += std::max(0, hops_left_[i][k] - hops(p_.pieces[i], rank, missing_[i][k]));
    return sum;
  }

  double begin(int32_t piece, const LogicalLink& link) const {
    double us = has_us_[static_cast<size_t>(piece)][static_cast<size_t>(link.from)];
    for (const int32_t r : link.resources) us = std::max(us, free_us_[static_cast<size_t>(r)]);
    return us;
  }

  Offer make_offer(int32_t piece, int32_t index) const {
    const LogicalLink& link = t_.links[static_cast<size_t>(index)];
    const double arrival = begin(piece, link) + link.alpha_us + link.beta_us;
    return {arrival, -gain(piece, link.to), (link.from - link.to + t_.ranks) % t_.ranks, piece,
            index};
  }

  void offer(int32_t piece, int rank) {
    for (const int32_t l : t_.leaving[static_cast<size_t>(rank)]) {
      if (!p_.candidate(piece, l)) continue;
      const Offer made = make_offer(piece, l);
      if (std::get<1>(made) != 0) queue_.push(made);
    }
  }

  void send(int32_t piece, int32_t index) {
    const LogicalLink& link = t_.links[static_cast<size_t>(index)];
    const double us = begin(piece, link);
    for (const int32_t r : link.resources)
      free_us_[static_cast<size_t>(r)] =
          us + link.busy_us + t_.resources[static_cast<size_t>(r)].beta_us;
    const auto i = static_cast<size_t>(piece);
    has_us_[i][static_cast<size_t>(link.to)] = us + link.alpha_us + link.beta_us * part_;
    routes_[i].push_back(index);
    for (size_t k = 0; k < missing_[i].size();) {
      hops_left_[i][k] = std::min(hops_left_[i][k], hops(p_.pieces[i], link.to, missing_[i][k]));
      if (missing_[i][k] != link.to) {
        k++;
        continue;
      }
      missing_[i].erase(missing_[i].begin() + static_cast<std::ptrdiff_t>(k));
      hops_left_[i].erase(hops_left_[i].begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  const TacclProblem& p_;
  const LogicalTopology& t_;
  const double part_;
  std::vector<double> free_us_;              // per resource
  std::vector<std::vector<double>> has_us_;  // [piece][rank]
  std::vector<std::vector<int>> missing_;    // per piece, ranks that want it and lack it
  std::vector<std::vector<int>> hops_left_;  // per entry of missing_, hops from the nearest rank
                                             // that has it
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> queue_;
  TacclRoutes routes_;
};

}  // namespace

TacclRoutes greedy_routes(const TacclProblem& problem, double pipelined) {
  return Greedy(problem, pipelined).run();
}

}  // namespace weft
