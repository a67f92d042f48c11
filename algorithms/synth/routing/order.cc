// List scheduling: the transfer that can start first starts. Ties go to the one with the longest
// way after it, or to the one that finished last in the previous, opposite pass.
#include "algorithms/synth/routing/order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace weft {
namespace {

class Order {
 public:
  Order(const Machine& machine, double piece_bytes, int rounds, std::vector<Transfer>& transfers)
      : machine_(machine),
        bytes_(piece_bytes),
        rounds_(rounds),
        transfers_(transfers),
        waiting_(machine.links.size()),
        free_(machine.links.size()) {}

  void run(const OrderOptions& options) {
    link_trees();
    measure();
    pass(false);
    const bool mirrored = options.mirrored && options.returns > 0;
    double best = mirrored ? std::numeric_limits<double>::infinity() : makespan();
    if (!mirrored) keep(false);
    // Transfers that came last go first on the way back, and so on.
    for (int i = 0; i < 2 * options.returns; i++) {
      const bool back = i % 2 == 0;
      urgency_ = tail_;
      pass(back);
      if (back != mirrored || makespan() >= best) continue;
      best = makespan();
      keep(back);
    }
  }

 private:
  double makespan() const {
    return tail_.empty() ? 0 : *std::max_element(tail_.begin(), tail_.end());
  }

  void keep(bool back) {
    const double end = makespan();
    for (size_t t = 0; t < transfers_.size(); t++)
      transfers_[t].begin_us = back ? end - tail_[t] : begin_[t];
  }

  // Schedules all transfers, forwards or backwards in time.
  void pass(bool back) {
    back_ = back;
    begin_.assign(transfers_.size(), 0);
    tail_.assign(transfers_.size(), 0);
    std::fill(free_.begin(), free_.end(), 0);
    pending_.assign(transfers_.size(), 0);
    for (size_t t = 0; t < transfers_.size(); t++) {
      pending_[t] = back ? first_child_[t + 1] - first_child_[t] : parent_[t] >= 0 ? 1 : 0;
      if (pending_[t] == 0) events_.push({0, static_cast<int32_t>(t), 0});
    }
    while (!events_.empty()) {
      const auto [at, number, hop] = events_.top();
      events_.pop();
      if (number < 0) {  // link -1 - number is free again
        const auto link = static_cast<size_t>(-1 - number);
        const auto [round, urgency, next, next_hop] = waiting_[link].top();
        waiting_[link].pop();
        cross(static_cast<size_t>(next), next_hop, at);
        continue;
      }
      const auto t = static_cast<size_t>(number);
      const size_t link = link_of(t, hop);
      if (hop == 0) tail_[t] = at;
      if (free_[link] <= at && waiting_[link].empty()) {
        cross(t, hop, at);
        continue;
      }
      if (waiting_[link].empty()) events_.push({free_[link], -1 - static_cast<int32_t>(link), 0});
      const int32_t round = transfers_[t].piece % rounds_;
      waiting_[link].push({back ? -round : round, -urgency_[t], number, hop});
    }
  }

  size_t link_of(size_t t, int32_t hop) const {
    const auto& links = transfers_[t].links;
    const auto at = static_cast<size_t>(hop);
    return static_cast<size_t>(links[back_ ? links.size() - 1 - at : at]);
  }

  // The piece enters a free link.
  void cross(size_t t, int32_t hop, double at) {
    const size_t link = link_of(t, hop);
    if (hop == 0) begin_[t] = at;
    free_[link] = at + time(link);
    if (!waiting_[link].empty()) events_.push({free_[link], -1 - static_cast<int32_t>(link), 0});
    tail_[t] = std::max(tail_[t], free_[link]) + machine_.links[link].us;
    if (static_cast<size_t>(hop) + 1 < transfers_[t].links.size()) {
      events_.push({at + machine_.links[link].us, static_cast<int32_t>(t), hop + 1});
      return;
    }
    if (!back_) {
      for (int32_t c = first_child_[t]; c < first_child_[t + 1]; c++)
        events_.push({tail_[t], children_[static_cast<size_t>(c)], 0});
      return;
    }
    if (parent_[t] < 0) return;
    const auto p = static_cast<size_t>(parent_[t]);
    tail_[p] = std::max(tail_[p], tail_[t]);
    if (--pending_[p] == 0) events_.push({tail_[p], parent_[t], 0});
  }

  double time(size_t link) const { return bytes_ / machine_.links[link].gbps * 1e-3; }

  void link_trees() {
    const size_t n = transfers_.size();
    std::vector<int32_t> by_piece(n);
    std::iota(by_piece.begin(), by_piece.end(), 0);
    std::stable_sort(by_piece.begin(), by_piece.end(), [&](int32_t a, int32_t b) {
      return transfers_[static_cast<size_t>(a)].piece < transfers_[static_cast<size_t>(b)].piece;
    });
    parent_.assign(n, -1);
    std::unordered_map<int32_t, int32_t> arrival;
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
      const int32_t piece = transfers_[static_cast<size_t>(by_piece[begin])].piece;
      arrival.clear();
      for (; end < n && transfers_[static_cast<size_t>(by_piece[end])].piece == piece; end++)
        arrival[transfers_[static_cast<size_t>(by_piece[end])].to] = by_piece[end];
      for (size_t i = begin; i < end; i++) {
        const auto t = static_cast<size_t>(by_piece[i]);
        if (const auto it = arrival.find(transfers_[t].from); it != arrival.end())
          parent_[t] = it->second;
      }
    }
    first_child_.assign(n + 1, 0);
    for (const int32_t p : parent_)
      if (p >= 0) first_child_[static_cast<size_t>(p) + 1]++;
    for (size_t t = 0; t < n; t++) first_child_[t + 1] += first_child_[t];
    children_.resize(n);
    std::vector<int32_t> next(first_child_.begin(), first_child_.end());
    for (size_t t = 0; t < n; t++)
      if (parent_[t] >= 0)
        children_[static_cast<size_t>(next[static_cast<size_t>(parent_[t])]++)] =
            static_cast<int32_t>(t);
  }

  // The longest time from a transfer's begin to the end of its tree.
  void measure() {
    urgency_.assign(transfers_.size(), 0);
    std::vector<int32_t> stack;
    for (size_t root = 0; root < transfers_.size(); root++) {
      if (parent_[root] >= 0) continue;
      std::vector<int32_t> order = {static_cast<int32_t>(root)};
      for (size_t i = 0; i < order.size(); i++) {
        const auto t = static_cast<size_t>(order[i]);
        for (int32_t c = first_child_[t]; c < first_child_[t + 1]; c++)
          order.push_back(children_[static_cast<size_t>(c)]);
      }
      for (size_t i = order.size(); i-- > 0;) {
        const auto t = static_cast<size_t>(order[i]);
        double us = 0, slowest = 0;
        for (const int32_t l : transfers_[t].links) {
          us += machine_.links[static_cast<size_t>(l)].us;
          slowest = std::max(slowest, time(static_cast<size_t>(l)));
        }
        urgency_[t] += us + slowest;
        if (const int32_t p = parent_[t]; p >= 0)
          urgency_[static_cast<size_t>(p)] =
              std::max(urgency_[static_cast<size_t>(p)], urgency_[t]);
      }
    }
  }

  const Machine& machine_;
  const double bytes_;
  const int32_t rounds_;
  std::vector<Transfer>& transfers_;
  // Time, transfer, index of its link.
  using Event = std::tuple<double, int32_t, int32_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  // Round, minus the urgency, transfer, index of its link.
  using Waiting = std::tuple<int32_t, double, int32_t, int32_t>;
  std::vector<std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>> waiting_;
  bool back_ = false;
  std::vector<double> free_;          // per link
  std::vector<double> begin_, tail_;  // per transfer, in this pass
  std::vector<int32_t> pending_;      // per transfer: how many transfers it waits for
  std::vector<int32_t> parent_;       // per transfer, -1: none
  std::vector<int32_t> first_child_, children_;
  std::vector<double> urgency_;  // per transfer; of those that wait for a link, the highest goes
                                 // first
};

}  // namespace

void order_transfers(const Machine& machine, double piece_bytes, const OrderOptions& options,
                     std::vector<Transfer>& transfers) {
  Order(machine, piece_bytes, options.rounds, transfers).run(options);
}

}  // namespace weft
