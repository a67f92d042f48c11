// See ordering.h.
#include "algorithms/synth/taccl/ordering.h"

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <utility>

namespace weft {
namespace {

class Ordering {
 public:
  Ordering(const TacclProblem& problem, const TacclRoutes& routes, int parts, OrderRule rule)
      : t_(problem.topology), parts_(parts), rule_(rule) {
    collect(routes);
    measure();
    waiting_.resize(t_.links.size());
    free_us_.assign(t_.resources.size(), 0.0);
    arrival_.assign(sends_.size(), 0.0);
  }

  TacclOrder run() {
    TacclOrder order;
    order.parts = parts_;
    std::vector<int32_t> place(sends_.size(), -1);
    for (size_t s = 0; s < sends_.size(); s++)
      if (sends_[s].parent < 0) release(static_cast<int32_t>(s));
    while (!queue_.empty()) {
      const Offer offer = queue_.top();
      queue_.pop();
      Waiting& waiting = waiting_[static_cast<size_t>(offer.link)];
      if (offer.version != waiting.version) continue;
      const Offer now = make_offer(offer.link);
      if (offer.key < now.key) {  // a shared resource has become busy since
        queue_.push(now);
        continue;
      }
      const auto s = static_cast<size_t>(take(waiting));
      const LogicalLink& link = link_of(s);
      const double begin = std::max(ready_us(s), free_us(link));
      for (const int32_t r : link.resources)
        free_us_[static_cast<size_t>(r)] =
            begin + link.busy_us + t_.resources[static_cast<size_t>(r)].beta_us / parts_;
      arrival_[s] = begin + link.alpha_us + link.beta_us / parts_;
      place[s] = static_cast<int32_t>(order.sends.size());
      TacclSend send = sends_[s];
      if (send.parent >= 0) send.parent = place[static_cast<size_t>(send.parent)];
      order.sends.push_back(send);
      order.begin_us.push_back(begin);
      order.time_us = std::max(order.time_us, arrival_[s]);
      for (const int32_t child : children_[s]) release(child);
      finish_own(s);
      announce(offer.link);
    }
    return order;
  }

 private:
  using Key = std::array<double, 5>;  // the least goes first

  // What a link could do next. The queue holds one valid offer per link.
  struct Offer {
    Key key{};
    int32_t link = 0, version = 0;
    bool operator>(const Offer& other) const {
      return key != other.key ? key > other.key : link > other.link;
    }
  };

  template <typename T>
  using Least = std::priority_queue<T, std::vector<T>, std::greater<>>;

  // Sends that wait for a link.
  struct Waiting {
    using Ranked = std::pair<Key, int32_t>;
    Least<Ranked> ready;                     // they can go when the link is free
    Least<std::pair<double, Ranked>> later;  // kEarliest: those that arrive later, by arrival
    int32_t version = 0;
  };

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
      held_.resize(t_.links.size());
      for (size_t s = 0; s < sends_.size(); s++)
        if (link_of(s).remote && sends_[s].parent < 0)
          own_left_[static_cast<size_t>(sends_[s].link)]++;
    }
  }

  // How far every send's piece has come, and how far it has to go.
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

  double ready_us(size_t s) const {
    return sends_[s].parent < 0 ? 0 : arrival_[static_cast<size_t>(sends_[s].parent)];
  }
  double free_us(const LogicalLink& link) const {
    double us = 0;
    for (const int32_t r : link.resources) us = std::max(us, free_us_[static_cast<size_t>(r)]);
    return us;
  }

  // The rank of a send apart from the time at which it can begin.
  Key rank_of(size_t s) const {
    const LogicalLink& link = link_of(s);
    const double turn = (link.from - link.to + t_.ranks) % t_.ranks;
    switch (rule_) {
      case OrderRule::kLongestPathFromNow:
        return {-from_[s], ready_us(s), until_[s], turn, static_cast<double>(s)};
      case OrderRule::kShortestPathUntilNow:
        return {until_[s], ready_us(s), -from_[s], turn, static_cast<double>(s)};
      case OrderRule::kEarliest:
        break;
    }
    return {-from_[s], until_[s], turn, static_cast<double>(s), 0};
  }

  Offer make_offer(int32_t index) {
    Waiting& waiting = waiting_[static_cast<size_t>(index)];
    const double free = free_us(t_.links[static_cast<size_t>(index)]);
    for (; !waiting.later.empty() && waiting.later.top().first <= free; waiting.later.pop())
      waiting.ready.push(waiting.later.top().second);
    const auto& [rank, send] = head(waiting);
    const double begin = std::max(free, ready_us(static_cast<size_t>(send)));
    Key key = rank;
    if (rule_ == OrderRule::kEarliest)
      key = {begin, rank[0], rank[1], rank[2], rank[3]};
    else
      key[1] = begin;
    return {key, index, waiting.version};
  }

  static const Waiting::Ranked& head(const Waiting& waiting) {
    return waiting.ready.empty() ? waiting.later.top().second : waiting.ready.top();
  }

  static int32_t take(Waiting& waiting) {
    const int32_t send = head(waiting).second;
    waiting.ready.empty() ? waiting.later.pop() : waiting.ready.pop();
    return send;
  }

  // The link has a new first send.
  void announce(int32_t link) {
    Waiting& waiting = waiting_[static_cast<size_t>(link)];
    waiting.version++;
    if (!waiting.ready.empty() || !waiting.later.empty()) queue_.push(make_offer(link));
  }

  // If the sketch wants it, a sender's relayed pieces wait until its own pieces are sent.
  void release(int32_t send) {
    const auto s = static_cast<size_t>(send);
    const auto link = static_cast<size_t>(sends_[s].link);
    if (t_.own_first && link_of(s).remote && sends_[s].parent >= 0 && own_left_[link] > 0) {
      held_[link].push_back(send);
      return;
    }
    if (rule_ == OrderRule::kEarliest)
      waiting_[link].later.push({ready_us(s), {rank_of(s), send}});
    else
      waiting_[link].ready.push({rank_of(s), send});
    announce(static_cast<int32_t>(link));
  }

  void finish_own(size_t s) {
    const auto link = static_cast<size_t>(sends_[s].link);
    if (!t_.own_first || !link_of(s).remote || sends_[s].parent >= 0 || --own_left_[link] > 0)
      return;
    const std::vector<int32_t> held = std::move(held_[link]);
    held_[link].clear();
    for (const int32_t send : held) release(send);
  }

  const LogicalTopology& t_;
  const int parts_;
  const OrderRule rule_;
  std::vector<TacclSend> sends_;  // by piece and part, parents first
  std::vector<std::vector<int32_t>> children_;
  std::vector<double> until_, from_;
  std::vector<int> own_left_;               // per link, if own pieces go first
  std::vector<std::vector<int32_t>> held_;  // per link
  std::vector<Waiting> waiting_;            // per link
  std::vector<double> free_us_;             // per resource
  std::vector<double> arrival_;             // per send
  Least<Offer> queue_;
};

}  // namespace

TacclOrder order_sends(const TacclProblem& problem, const TacclRoutes& routes, int parts,
                       OrderRule rule) {
  return Ordering(problem, routes, parts, rule).run();
}

}  // namespace weft
