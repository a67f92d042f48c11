// See race.h.
#include "algorithms/synth/latency/race.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace weft {
namespace {

constexpr double kNever = 1e300;

// Times are compared in ticks of 0.1 ns, so that sums in another order are equal.
int64_t ticks(double us) { return std::llround(us * 1e4); }

class Race {
 public:
  Race(const HopGraph& graph, const std::vector<int32_t>& origin, double bytes,
       const RaceRules& rules)
      : graph_(graph), origin_(origin), bytes_(bytes), rules_(rules), pieces_(origin.size()) {
    const int hosts = *std::max_element(graph.host.begin(), graph.host.end()) + 1;
    at_.assign(pieces_ * graph.ranks, kNever);
    holders_.assign(pieces_ * hosts, 0);
    landed_.assign(graph.ranks, 0);
    has_left_.assign(pieces_, false);
    free_us_.assign(graph.gbps.size(), 0.0);
    busy_us_.assign(graph.gbps.size(), 0.0);
    for (const double gbps : graph.gbps) link_us_.push_back(gbps > 0 ? bytes * 1e-3 / gbps : 0);
    waiting_.resize(graph.hops.size());
    queued_.assign(graph.hops.size(), Key{INT64_MAX, 0, 0, 0});
  }

  Timetable run() {
    for (size_t p = 0; p < pieces_; p++) obtain(static_cast<int32_t>(p), origin_[p], 0.0);
    while (!queue_.empty()) {
      const auto [promised, hop] = queue_.top();
      queue_.pop();
      if (promised != queued_[hop]) continue;
      const Choice choice = choose(hop);
      if (choice.piece < 0) {
        queued_[hop] = choice.key;
        continue;
      }
      if (choice.key > promised) {
        offer(choice.key, hop);
        continue;
      }
      deliver(choice.piece, hop);
      offer(choose(hop).key, hop);
    }
    table_.complete = table_.deliveries.size() == pieces_ * static_cast<size_t>(graph_.ranks - 1);
    for (const double us : busy_us_) table_.busiest_us = std::max(table_.busiest_us, us);
    return std::move(table_);
  }

 private:
  // Arrival, number of holders in the host, pieces that the receiver has to pass on already, and
  // distance round the ranks.
  using Key = std::tuple<int64_t, int32_t, int32_t, int32_t>;
  struct Choice {
    int32_t piece = -1;
    Key key{INT64_MAX, 0, 0, 0};
  };

  double& at(int32_t piece, int rank) {
    return at_[piece * static_cast<size_t>(graph_.ranks) + rank];
  }
  int32_t& holders(int32_t piece, int host) { return holders_[host * pieces_ + piece]; }
  bool crosses(const Hop& hop) const { return graph_.host[hop.from] != graph_.host[hop.to]; }

  // Whether the receiver must pass the piece on to other ranks.
  bool lands(int32_t piece, const Hop& hop) const {
    return crosses(hop) || (rules_.once_from_origin && hop.from == origin_[piece]);
  }

  bool allowed(int32_t piece, const Hop& hop) {
    return at(piece, hop.to) == kNever &&
           !(rules_.once_per_host && crosses(hop) && holders(piece, graph_.host[hop.to]) > 0) &&
           !(rules_.once_from_origin && !crosses(hop) && has_left_[piece] &&
             hop.from == origin_[piece]);
  }

  // A message that starts at this time or later meets no queue on its path.
  double smooth(const Hop& hop) const {
    double us = 0, before = 0;
    for (const int32_t l : hop.links) {
      us = std::max(us, free_us_[l] - before);
      before += graph_.us[l];
    }
    return us;
  }

  Key key(int32_t piece, int32_t number, double smooth_us) {
    const Hop& hop = graph_.hops[number];
    const double arrive = std::max(smooth_us, at(piece, hop.from)) + hop.us + message_us(hop);
    return {ticks(arrive), holders(piece, graph_.host[hop.to]),
            lands(piece, hop) ? landed_[hop.to] : 0,
            (hop.to - hop.from + graph_.ranks) % graph_.ranks};
  }

  // The best piece that the hop could carry next.
  Choice choose(int32_t number) {
    const Hop& hop = graph_.hops[number];
    const double smooth_us = smooth(hop);
    Choice best;
    auto& waiting = waiting_[number];
    table_.looks += static_cast<int64_t>(waiting.size()) + 1;
    size_t kept = 0;
    for (const int32_t piece : waiting) {
      if (!allowed(piece, hop)) continue;  // stays so: no rank loses a piece
      waiting[kept++] = piece;
      const Key candidate = key(piece, number, smooth_us);
      if (best.piece < 0 || candidate < best.key) best = {piece, candidate};
    }
    waiting.resize(kept);
    return best;
  }

  double message_us(const Hop& hop) const { return bytes_ * 1e-3 / hop.gbps; }

  void deliver(int32_t piece, int32_t number) {
    const Hop& hop = graph_.hops[number];
    double head = at(piece, hop.from), tail = head, begin = -1;
    for (const int32_t l : hop.links) {
      head = std::max(head, free_us_[l]);
      if (begin < 0) begin = head;
      free_us_[l] = head + link_us_[l];
      busy_us_[l] += link_us_[l];
      tail = std::max(tail, free_us_[l]) + graph_.us[l];
      head += graph_.us[l];
    }
    table_.deliveries.push_back({piece, number, begin, tail});
    table_.end_us = std::max(table_.end_us, tail);
    if (lands(piece, hop)) landed_[hop.to]++;
    if (!crosses(hop)) has_left_[piece] = true;
    obtain(piece, hop.to, tail);
  }

  void obtain(int32_t piece, int rank, double us) {
    at(piece, rank) = us;
    holders(piece, graph_.host[rank])++;
    for (const int32_t h : graph_.leaving[rank]) {
      if (!allowed(piece, graph_.hops[h])) continue;
      waiting_[h].push_back(piece);
      const Key candidate = key(piece, h, smooth(graph_.hops[h]));
      if (candidate < queued_[h]) offer(candidate, h);
    }
  }

  // A key in the queue may have become too low since. It is checked again when it comes up.
  void offer(const Key& candidate, int32_t hop) {
    queued_[hop] = candidate;
    if (std::get<0>(candidate) != INT64_MAX) queue_.push({candidate, hop});
  }

  const HopGraph& graph_;
  const std::vector<int32_t>& origin_;
  const double bytes_;
  const RaceRules rules_;
  const size_t pieces_;
  std::vector<double> at_;                           // [piece][rank]: when the rank has it
  std::vector<int32_t> holders_;                     // [host][piece]
  std::vector<int32_t> landed_;                      // per rank, pieces to pass on
  std::vector<bool> has_left_;                       // per piece: whether it has left its origin
  std::vector<double> free_us_, busy_us_, link_us_;  // per link
  std::vector<std::vector<int32_t>> waiting_;        // per hop, pieces that may cross it
  std::vector<Key> queued_;                          // per hop, its entry in the queue
  using Entry = std::pair<Key, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  Timetable table_;
};

}  // namespace

Timetable race(const HopGraph& graph, const std::vector<int32_t>& origin, double piece_bytes,
               const RaceRules& rules) {
  return Race(graph, origin, piece_bytes, rules).run();
}

}  // namespace weft
