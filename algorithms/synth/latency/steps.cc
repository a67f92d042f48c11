// See steps.h.
#include "algorithms/synth/latency/steps.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace weft {
namespace {

constexpr int kAttempts = 200;  // per division of rounds

class Search {
 public:
  explicit Search(const StepProblem& problem)
      : problem_(problem),
        ranks_(problem.graph.ranks),
        pieces_(static_cast<int>(problem.origin.size())),
        arriving_(ranks_),
        urgency_(ranks_ * static_cast<size_t>(pieces_), 0.0) {
    for (size_t h = 0; h < problem.graph.hops.size(); h++)
      arriving_[problem.graph.hops[h].to].push_back(static_cast<int32_t>(h));
  }

  // Tries one division of the rounds; rounds[s] belong to step s.
  std::optional<std::vector<StepSend>> run(const std::vector<int>& rounds) {
    if (!enough(rounds)) return std::nullopt;
    std::fill(urgency_.begin(), urgency_.end(), 0.0);
    for (int attempt = 0; attempt < kAttempts; attempt++)
      if (try_once(rounds)) return sends_;
    return std::nullopt;
  }

 private:
  size_t cell(int rank, int piece) const { return rank * static_cast<size_t>(pieces_) + piece; }

  // Whether every rank can receive enough, if ranks lack pieces to send only in the first step.
  bool enough(const std::vector<int>& rounds) const {
    const int later = std::accumulate(rounds.begin() + 1, rounds.end(), 0);
    for (int r = 0; r < ranks_; r++) {
      int most = 0, own = 0;
      for (int p = 0; p < pieces_; p++) own += problem_.origin[p] == r;
      for (const int32_t h : arriving_[r]) {
        int begun = 0;
        for (int p = 0; p < pieces_; p++)
          begun += problem_.origin[p] == problem_.graph.hops[h].from;
        most += std::min(rounds[0] * problem_.width[h], begun) + later * problem_.width[h];
      }
      if (most < pieces_ - own) return false;
    }
    return true;
  }

  bool try_once(const std::vector<int>& rounds) {
    sends_.clear();
    has_.assign(ranks_ * static_cast<size_t>(pieces_), false);
    holders_.assign(pieces_, 1);
    for (int p = 0; p < pieces_; p++) has_[cell(problem_.origin[p], p)] = true;
    for (size_t step = 0; step < rounds.size(); step++) {
      std::vector<int> order(ranks_);
      std::iota(order.begin(), order.end(), 0);
      for (int i = ranks_ - 1; i > 0; i--)
        std::swap(order[i], order[random_() % static_cast<uint32_t>(i + 1)]);
      std::vector<std::pair<int, int>> received;  // not to be passed on in this step
      for (const int r : order) receive(r, rounds[step], static_cast<int32_t>(step), received);
      for (const auto& [rank, piece] : received) has_[cell(rank, piece)] = true;
    }
    bool complete = true;
    for (int r = 0; r < ranks_; r++)
      for (int p = 0; p < pieces_; p++) {
        if (has_[cell(r, p)]) continue;
        complete = false;
        // The ranks that could have sent the piece should have had it.
        for (const int32_t h : arriving_[r]) urgency_[cell(problem_.graph.hops[h].from, p)] += 1;
      }
    for (double& u : urgency_) u *= 0.98;
    return complete;
  }

  void receive(int rank, int rounds, int32_t step, std::vector<std::pair<int, int>>& received) {
    const auto& hops = arriving_[rank];
    carried_.assign(hops.size(), {});
    std::vector<std::pair<double, int>> wanted;
    for (int p = 0; p < pieces_; p++)
      if (!has_[cell(rank, p)]) wanted.push_back({-worth(rank, p), p});
    std::sort(wanted.begin(), wanted.end());
    for (const auto& [worth, p] : wanted) {
      visited_.assign(hops.size(), false);
      if (!place(p, rank, rounds)) continue;
      received.push_back({rank, p});
      holders_[p]++;
    }
    for (size_t i = 0; i < hops.size(); i++)
      for (const int p : carried_[i]) sends_.push_back({p, hops[i], step});
  }

  // Rare pieces and pieces that were missed are worth more, plus a little randomness.
  double worth(int rank, int piece) {
    return urgency_[cell(rank, piece)] - 2.0 * holders_[piece] + random_() * 0x1p-32;
  }

  // Puts the piece on a hop to the rank. Moves other pieces if that makes room.
  bool place(int piece, int rank, int rounds) {
    const auto& hops = arriving_[rank];
    for (size_t i = 0; i < hops.size(); i++) {
      if (visited_[i] || !has_[cell(problem_.graph.hops[hops[i]].from, piece)]) continue;
      visited_[i] = true;
      if (carried_[i].size() < static_cast<size_t>(rounds * problem_.width[hops[i]])) {
        carried_[i].push_back(piece);
        return true;
      }
      for (size_t k = 0; k < carried_[i].size(); k++) {
        const int other = carried_[i][k];
        if (!place(other, rank, rounds)) continue;
        carried_[i][k] = piece;
        return true;
      }
    }
    return false;
  }

  const StepProblem& problem_;
  const int ranks_, pieces_;
  std::vector<std::vector<int32_t>> arriving_;  // per rank, hops
  std::vector<double> urgency_;                 // rank, piece
  std::mt19937 random_{1};                      // the standard fixes its sequence
  std::vector<bool> has_;                       // rank, piece
  std::vector<int> holders_;                    // per piece
  std::vector<std::vector<int>> carried_;       // per arriving hop, pieces
  std::vector<bool> visited_;
  std::vector<StepSend> sends_;
};

// Every division of the rounds among steps, at least one for each.
void divide(int steps, int rounds, std::vector<int>& begun, std::vector<std::vector<int>>& all) {
  if (steps == 1) {
    all.push_back(begun);
    all.back().push_back(rounds);
    return;
  }
  for (int first = 1; first <= rounds - steps + 1; first++) {
    begun.push_back(first);
    divide(steps - 1, rounds - first, begun, all);
    begun.pop_back();
  }
}

}  // namespace

std::optional<std::vector<StepSend>> find_steps(const StepProblem& problem, int steps, int rounds) {
  std::vector<std::vector<int>> divisions;
  std::vector<int> begun;
  divide(steps, rounds, begun, divisions);
  Search search(problem);
  for (const auto& division : divisions)
    if (auto found = search.run(division)) return found;
  return std::nullopt;
}

}  // namespace weft
