// See list_schedule.h.
#include "src/workload/list_schedule.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>

#include "src/workload/rewrite.h"

namespace weft::workload {
namespace {

// Urgent compute and collectives keep their order within streams, fillers come when compute would
// wait. Every operation takes its time alone: the timeline tells the truth afterwards.
class GapFiller {
 public:
  GapFiller(const Graph& graph, CommCosts& costs, const Filling& filling)
      : graph_(graph), filling_(filling), actors_(actors_of(graph)) {
    const size_t n = graph.ops.size();
    left_.resize(n);
    followers_.resize(n);
    ready_us_.assign(n, 0);
    for (size_t i = 0; i < n; i++) {
      const Op& op = graph.ops[i];
      us_.push_back(op.collective ? costs
                                        .cost(*op.collective, op.bytes,
                                              graph.groups[static_cast<size_t>(op.group)].instances)
                                        .us
                                  : op.us);
      filler_.push_back(!op.collective && filling.fills(op));
      std::set<int> before(op.after.begin(), op.after.end());
      if (!filler_[i])
        for (const int actor : actors_.of(op)) {
          const auto [it, fresh] = last_.try_emplace({actor, op.stream}, static_cast<int>(i));
          if (!fresh) before.insert(std::exchange(it->second, static_cast<int>(i)));
        }
      left_[i] = static_cast<int>(before.size());
      for (const int each : before)
        followers_[static_cast<size_t>(each)].push_back(static_cast<int>(i));
    }
    free_us_.assign(actors_.ranks.size(), 0);
    waiting_.resize(actors_.ranks.size());
  }

  std::vector<int> order() {
    for (size_t i = 0; i < left_.size(); i++)
      if (left_[i] == 0) make_ready(static_cast<int>(i));
    while (begun_.size() < left_.size()) {
      // The urgent operation that can begin first.
      double first = std::numeric_limits<double>::infinity();
      int chosen = -1;
      for (const int op : urgent_)
        if (const double at = begin_of(op); at < first) {
          first = at;
          chosen = op;
        }
      if (const int filler = filler_before(first, chosen); filler >= 0) chosen = filler;
      begin(chosen);
    }
    std::stable_sort(begun_.begin(), begun_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<int> order;
    for (const auto& [us, op] : begun_) order.push_back(op);
    return order;
  }

 private:
  const Op& op_of(int op) const { return graph_.ops[static_cast<size_t>(op)]; }

  void make_ready(int op) {
    if (!filler_[static_cast<size_t>(op)]) {
      urgent_.insert(op);
      return;
    }
    for (const int actor : actors_.of(op_of(op))) waiting_[static_cast<size_t>(actor)].insert(op);
  }

  // Compute also waits until the actor's multiprocessors are free.
  double begin_of(int op) const {
    double us = ready_us_[static_cast<size_t>(op)];
    if (op_of(op).stream == kComputeStream)
      for (const int actor : actors_.of(op_of(op)))
        us = std::max(us, free_us_[static_cast<size_t>(actor)]);
    return us;
  }

  // A filler that can begin before the next urgent operation does, on an actor that would be idle
  // till then.
  int filler_before(double first, int chosen) const {
    int best = -1;
    double best_at = first;
    for (size_t a = 0; a < waiting_.size(); a++)
      for (const int op : waiting_[a]) {
        const double at = begin_of(op);
        const double gap = next_urgent(a) - at;
        const bool fits = chosen < 0 || gap > 0;
        if (!fits || at > best_at) continue;
        if (chosen >= 0 && us_[static_cast<size_t>(op)] > filling_.overrun * gap) continue;
        if (best < 0 || at < best_at) {
          best = op;
          best_at = at;
        }
      }
    return best;
  }

  // When the actor's next urgent compute can begin, as far as is known.
  double next_urgent(size_t actor) const {
    double us = std::numeric_limits<double>::infinity();
    for (const int op : urgent_)
      if (op_of(op).stream == kComputeStream) {
        const auto& mine = actors_.of(op_of(op));
        if (std::binary_search(mine.begin(), mine.end(), static_cast<int>(actor)))
          us = std::min(us, begin_of(op));
      }
    for (const auto& [end, op] : flying_)
      if (const auto& mine = actors_.of(op_of(op));
          std::binary_search(mine.begin(), mine.end(), static_cast<int>(actor)))
        us = std::min(us, end);
    return us;
  }

  void begin(int op) {
    const double at = begin_of(op), end = at + us_[static_cast<size_t>(op)];
    urgent_.erase(op);
    for (auto& waiting : waiting_) waiting.erase(op);
    begun_.emplace_back(at, op);
    for (auto it = flying_.begin(); it != flying_.end();)
      it = it->first <= at ? flying_.erase(it) : std::next(it);
    if (op_of(op).collective) flying_.emplace(end, op);
    if (op_of(op).stream == kComputeStream)
      for (const int actor : actors_.of(op_of(op))) free_us_[static_cast<size_t>(actor)] = end;
    for (const int f : followers_[static_cast<size_t>(op)]) {
      const auto follower = static_cast<size_t>(f);
      ready_us_[follower] = std::max(ready_us_[follower], end);
      if (--left_[follower] == 0) make_ready(f);
    }
  }

  const Graph& graph_;
  const Filling& filling_;
  const Actors actors_;
  std::vector<double> us_, ready_us_, free_us_;
  std::vector<bool> filler_;
  std::vector<int> left_;
  std::vector<std::vector<int>> followers_;
  std::map<std::pair<int, std::string>, int> last_;
  std::set<int> urgent_;                     // can begin as far as others are concerned
  std::vector<std::set<int>> waiting_;       // fillers of every actor
  std::set<std::pair<double, int>> flying_;  // collectives under way, by their end
  std::vector<std::pair<double, int>> begun_;
};

}  // namespace

Graph fill_gaps(const Graph& graph, CommCosts& costs, const Filling& filling) {
  return reorder(graph, GapFiller(graph, costs, filling).order());
}

}  // namespace weft::workload
