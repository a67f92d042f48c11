// List scheduling: the transfer that can start first does; of those the one with the longest way
// after it.
#include "algorithms/synth/order.h"

#include <algorithm>
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
        free_(machine.links.size()) {}

  void run() {
    link_trees();
    measure();
    // When, round, minus the way behind it, transfer, which of its links.
    using Event = std::tuple<double, int32_t, double, int32_t, int32_t>;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::vector<double> tail(transfers_.size(), 0);
    const auto set_out = [&](size_t t, double at) {
      tail[t] = at;
      events.push({at, transfers_[t].piece % rounds_, -behind_[t], static_cast<int32_t>(t), 0});
    };
    for (size_t t = 0; t < transfers_.size(); t++)
      if (parent_[t] < 0) set_out(t, 0);
    while (!events.empty()) {
      const auto [at, round, urgency, number, hop] = events.top();
      events.pop();
      const auto t = static_cast<size_t>(number);
      const auto& links = transfers_[t].links;
      const auto link = static_cast<size_t>(links[static_cast<size_t>(hop)]);
      if (free_[link] > at) {
        events.push({free_[link], round, urgency, number, hop});
        continue;
      }
      if (hop == 0) transfers_[t].begin_us = at;
      free_[link] = at + time(link);
      tail[t] = std::max(tail[t], free_[link]) + machine_.links[link].us;
      if (static_cast<size_t>(hop) + 1 < links.size()) {
        events.push({at + machine_.links[link].us, round, urgency, number, hop + 1});
        continue;
      }
      for (int32_t c = first_child_[t]; c < first_child_[t + 1]; c++)
        set_out(static_cast<size_t>(children_[static_cast<size_t>(c)]), tail[t]);
    }
  }

 private:
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

  // How long the longest way is from a transfer's begin to the end of its tree.
  void measure() {
    behind_.assign(transfers_.size(), 0);
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
        behind_[t] += us + slowest;
        if (const int32_t p = parent_[t]; p >= 0)
          behind_[static_cast<size_t>(p)] = std::max(behind_[static_cast<size_t>(p)], behind_[t]);
      }
    }
  }

  const Machine& machine_;
  const double bytes_;
  const int32_t rounds_;
  std::vector<Transfer>& transfers_;
  std::vector<double> free_;     // per link
  std::vector<int32_t> parent_;  // per transfer, -1: none
  std::vector<int32_t> first_child_, children_;
  std::vector<double> behind_;
};

}  // namespace

void order_transfers(const Machine& machine, double piece_bytes, int rounds,
                     std::vector<Transfer>& transfers) {
  Order(machine, piece_bytes, rounds, transfers).run();
}

}  // namespace weft
