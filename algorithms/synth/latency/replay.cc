// See replay.h.
#include "algorithms/synth/latency/replay.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace weft {
namespace {

constexpr int kFollowed = 3;  // slices

class Replay {
 public:
  Replay(const HopGraph& graph, const std::vector<int32_t>& origin, const Timetable& table,
         double bytes, int slices, int fifo_depth)
      : graph_(graph),
        table_(table),
        slices_(slices),
        depth_(fifo_depth),
        pieces_(origin.size()),
        free_us_(graph.gbps.size(), 0.0),
        under_way_(graph.hops.size(), 0),
        has_(slices * pieces_ * graph.ranks, false),
        rank_ports_(graph.ranks),
        end_us_(slices, 0.0) {
    for (const double gbps : graph.gbps) link_us_.push_back(gbps > 0 ? bytes * 1e-3 / gbps : 0);
    for (int s = 0; s < slices; s++)
      for (size_t p = 0; p < pieces_; p++)
        has_[place(s, static_cast<int32_t>(p), origin[p])] = true;
    std::vector<int32_t> order(table.deliveries.size()), port_of(graph.gbps.size(), -1);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return table.deliveries[a].begin_us < table.deliveries[b].begin_us;
    });
    for (const int32_t d : order) {
      const Hop& hop = graph.hops[table.deliveries[d].hop];
      int32_t& port = port_of[hop.links[0]];
      if (port < 0) {
        port = static_cast<int32_t>(ports_.size());
        rank_ports_[hop.from].push_back(port);
        ports_.emplace_back();
      }
      ports_[port].deliveries.push_back(d);
    }
    port_of_link_ = std::move(port_of);
  }

  // When each slice is complete.
  const std::vector<double>& run() {
    for (size_t p = 0; p < ports_.size(); p++) try_port(static_cast<int32_t>(p));
    while (!events_.empty()) {
      const auto [at, order, number] = events_.top();
      events_.pop();
      now_ = at;
      if (number < 0) {
        ports_[-1 - number].busy = false;
        try_port(-1 - number);
      } else if (messages_[number].link < links_of(number).size()) {
        cross(number);
      } else {
        arrive(number);
      }
    }
    return end_us_;
  }

 private:
  struct Port {
    std::vector<int32_t> deliveries;
    size_t next = 0;  // counts through all slices
    bool busy = false;
  };
  struct Message {
    int32_t delivery = 0, slice = 0;
    size_t link = 0;  // the next one of its hop
    double tail_us = 0;
  };

  size_t place(int slice, int32_t piece, int rank) const {
    return (slice * pieces_ + piece) * graph_.ranks + rank;
  }
  const Hop& hop_of(int32_t message) const {
    return graph_.hops[table_.deliveries[messages_[message].delivery].hop];
  }
  const std::vector<int32_t>& links_of(int32_t message) const { return hop_of(message).links; }
  void push(double at, int32_t number) { events_.push({at, order_++, number}); }

  void try_port(int32_t number) {
    Port& port = ports_[number];
    const size_t size = port.deliveries.size();
    if (port.busy || port.next == size * slices_) return;
    const int32_t d = port.deliveries[port.next % size];
    const auto slice = static_cast<int32_t>(port.next / size);
    const Delivery& delivery = table_.deliveries[d];
    if (!has_[place(slice, delivery.piece, graph_.hops[delivery.hop].from)] ||
        under_way_[delivery.hop] == depth_)
      return;
    under_way_[delivery.hop]++;
    port.busy = true;
    port.next++;
    messages_.push_back({d, slice, 0, now_});
    push(cross(static_cast<int32_t>(messages_.size()) - 1), -1 - number);
  }

  // The first byte enters the next link. Returns when the last byte has left it.
  double cross(int32_t number) {
    Message& message = messages_[number];
    const auto& links = links_of(number);
    const int32_t l = links[message.link++];
    const double begin = std::max(now_, free_us_[l]);
    free_us_[l] = begin + link_us_[l];
    const double left = std::max(free_us_[l], message.tail_us);
    message.tail_us = left + graph_.us[l];
    push(message.link < links.size() ? begin + graph_.us[l] : message.tail_us, number);
    return left;
  }

  void arrive(int32_t number) {
    const Message message = messages_[number];
    const Delivery& delivery = table_.deliveries[message.delivery];
    const Hop& hop = graph_.hops[delivery.hop];
    under_way_[delivery.hop]--;
    has_[place(message.slice, delivery.piece, hop.to)] = true;
    end_us_[message.slice] = now_;
    for (const int32_t port : rank_ports_[hop.to]) try_port(port);
    try_port(port_of_link_[hop.links[0]]);
  }

  const HopGraph& graph_;
  const Timetable& table_;
  const int slices_, depth_;
  const size_t pieces_;
  std::vector<double> free_us_, link_us_;  // per link
  std::vector<int32_t> port_of_link_;
  std::vector<int> under_way_;  // per hop, messages in flight
  std::vector<bool> has_;       // slice, piece, rank
  std::vector<Port> ports_;
  std::vector<std::vector<int32_t>> rank_ports_;
  std::vector<Message> messages_;
  std::vector<double> end_us_;  // per slice
  // Time, order, and a message or a port as -1 - number.
  using Event = std::tuple<double, int64_t, int32_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t order_ = 0;
  double now_ = 0;
};

}  // namespace

double replay_us(const HopGraph& graph, const std::vector<int32_t>& origin, const Timetable& table,
                 double piece_bytes, double slices, int fifo_depth) {
  const int followed = static_cast<int>(std::min<double>(slices, kFollowed));
  Replay replay(graph, origin, table, piece_bytes, followed, fifo_depth);
  const std::vector<double>& ends = replay.run();
  if (followed == 1) return ends[0];
  const double pace = std::max(ends[followed - 1] - ends[followed - 2], table.busiest_us);
  return ends[followed - 1] + (slices - followed) * pace;
}

}  // namespace weft
