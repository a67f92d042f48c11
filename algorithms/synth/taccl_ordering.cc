// See taccl_ordering.h.
#include "algorithms/synth/taccl_ordering.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace weft {
namespace {

class Ordering {
 public:
  Ordering(const TacclProblem& problem, const TacclRoutes& routes, int parts, OrderRule rule)
      : p_(problem), t_(problem.topology), parts_(parts), rule_(rule) {
    collect(routes);
    measure();
  }

  TacclOrder run() {
    std::vector<double> free_us(t_.resources.size(), 0.0), arrival(sends_.size(), 0.0);
    std::vector<int32_t> place(sends_.size(), -1);
    TacclOrder order;
    order.parts = parts_;
    for (size_t s = 0; s < sends_.size(); s++)
      if (sends_[s].parent < 0) release(static_cast<int32_t>(s), free_us, arrival);
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      const auto s = static_cast<size_t>(std::get<4>(entry));
      const Entry now = make_entry(std::get<4>(entry), free_us, arrival);
      if (entry < now) {
        queue_.push(now);
        continue;
      }
      const LogicalLink& link = link_of(s);
      const double begin = begin_us(s, free_us, arrival);
      for (const int32_t r : link.resources)
        free_us[static_cast<size_t>(r)] =
            begin + link.busy_us + t_.resources[static_cast<size_t>(r)].beta_us / parts_;
      arrival[s] = begin + link.alpha_us + link.beta_us / parts_;
      place[s] = static_cast<int32_t>(order.sends.size());
      TacclSend send = sends_[s];
      if (send.parent >= 0) send.parent = place[static_cast<size_t>(send.parent)];
      order.sends.push_back(send);
      order.begin_us.push_back(begin);
      order.time_us = std::max(order.time_us, arrival[s]);
      for (const int32_t child : children_[s]) release(child, free_us, arrival);
      finish_own(s, free_us, arrival);
    }
    return order;
  }

 private:
  // Keys, turn, the send; the least first.
  using Entry = std::tuple<double, double, double, int, int32_t>;

  void collect(const TacclRoutes& routes) {
    for (size_t i = 0; i < routes.size(); i++)
      for (int part = 0; part < parts_; part++) {
        std::map<int, int32_t> brought_by;
        for (const int32_t l : routes[i]) {
          const LogicalLink& link = t_.links[static_cast<size_t>(l)];
          const auto it = brought_by.find(link.from);
          brought_by[link.to] = static_cast<int32_t>(sends_.size());
          sends_.push_back(
              {static_cast<int32_t>(i), part, l, it == brought_by.end() ? -1 : it->second});
        }
      }
    children_.resize(sends_.size());
    for (size_t s = 0; s < sends_.size(); s++)
      if (sends_[s].parent >= 0)
        children_[static_cast<size_t>(sends_[s].parent)].push_back(static_cast<int32_t>(s));
    if (t_.own_first) {
      own_left_.resize(t_.links.size(), 0);
      waiting_.resize(t_.links.size());
      for (size_t s = 0; s < sends_.size(); s++)
        if (link_of(s).remote && sends_[s].parent < 0)
          own_left_[static_cast<size_t>(sends_[s].link)]++;
    }
  }

  // How far every send's piece has come, and has to go.
  void measure() {
    until_.resize(sends_.size(), 0.0);
    from_.resize(sends_.size(), 0.0);
    const auto us = [&](size_t s) { return link_of(s).alpha_us + link_of(s).beta_us / parts_; };
    for (size_t s = 0; s < sends_.size(); s++)
      if (const int32_t parent = sends_[s].parent; parent >= 0)
        until_[s] = until_[static_cast<size_t>(parent)] + us(static_cast<size_t>(parent));
    for (size_t s = sends_.size(); s-- > 0;) {
      from_[s] += us(s);
      if (const int32_t parent = sends_[s].parent; parent >= 0)
        from_[static_cast<size_t>(parent)] = std::max(from_[static_cast<size_t>(parent)], from_[s]);
    }
  }

  const LogicalLink& link_of(size_t s) const {
    return t_.links[static_cast<size_t>(sends_[s].link)];
  }

  double begin_us(size_t s, const std::vector<double>& free_us,
                  const std::vector<double>& arrival) const {
    double us = sends_[s].parent < 0 ? 0 : arrival[static_cast<size_t>(sends_[s].parent)];
    for (const int32_t r : link_of(s).resources) us = std::max(us, free_us[static_cast<size_t>(r)]);
    return us;
  }

  Entry make_entry(int32_t send, const std::vector<double>& free_us,
                   const std::vector<double>& arrival) const {
    const auto s = static_cast<size_t>(send);
    const double begin = begin_us(s, free_us, arrival);
    const LogicalLink& link = link_of(s);
    const int turn = (link.from - link.to + t_.ranks) % t_.ranks;
    switch (rule_) {
      case OrderRule::kLongestPathFromNow:
        return {-from_[s], begin, until_[s], turn, send};
      case OrderRule::kShortestPathUntilNow:
        return {until_[s], begin, -from_[s], turn, send};
      case OrderRule::kEarliest:
        break;
    }
    return {begin, -from_[s], until_[s], turn, send};
  }

  // What a sender relays waits until its own pieces are on their way, where the sketch wants that.
  void release(int32_t send, const std::vector<double>& free_us,
               const std::vector<double>& arrival) {
    const auto s = static_cast<size_t>(send);
    const auto link = static_cast<size_t>(sends_[s].link);
    if (t_.own_first && link_of(s).remote && sends_[s].parent >= 0 && own_left_[link] > 0)
      waiting_[link].push_back(send);
    else
      queue_.push(make_entry(send, free_us, arrival));
  }

  void finish_own(size_t s, const std::vector<double>& free_us,
                  const std::vector<double>& arrival) {
    const auto link = static_cast<size_t>(sends_[s].link);
    if (!t_.own_first || !link_of(s).remote || sends_[s].parent >= 0 || --own_left_[link] > 0)
      return;
    for (const int32_t send : waiting_[link]) queue_.push(make_entry(send, free_us, arrival));
    waiting_[link].clear();
  }

  const TacclProblem& p_;
  const LogicalTopology& t_;
  const int parts_;
  const OrderRule rule_;
  std::vector<TacclSend> sends_;  // by piece and part, parents first
  std::vector<std::vector<int32_t>> children_;
  std::vector<double> until_, from_;
  std::vector<int> own_left_;                  // per link
  std::vector<std::vector<int32_t>> waiting_;  // per link
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

TacclOrder order_sends(const TacclProblem& problem, const TacclRoutes& routes, int parts,
                       OrderRule rule) {
  return Ordering(problem, routes, parts, rule).run();
}

}  // namespace weft
