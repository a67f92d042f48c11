// See weave_plan.h.
#include "algorithms/synth/weave_plan.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <unordered_map>

#include "src/base/error.h"

namespace weft {
namespace {

// What waits in a FIFO does not hold up a lane.
constexpr size_t kPatience = 8;
// Messages that wait in a FIFO while the order of steps is found.
constexpr size_t kWaiting = 4;

struct Message {
  int32_t fifo = 0, first = 0, count = 1;
  size_t begin = 0, end = 0;  // its transfers, in sorted order
  int32_t parent = -1;        // the message or start that brought exactly these pieces, -1: several
  bool fused = false;
};

// Pieces that a rank has from the start and sends alike.
struct Start {
  int32_t rank = 0, first = 0, count = 1;
  int32_t lane = 0;
};

double seconds_per_byte(const Machine* machine, int32_t link) {
  return machine == nullptr ? 1.0 : 1.0 / machine->links[static_cast<size_t>(link)].gbps;
}

class Planner {
 public:
  Planner(const Pieces& pieces, const std::vector<Transfer>& transfers, const LaneOptions& options)
      : pieces_(pieces),
        transfers_(transfers),
        machine_(options.machine),
        budget_(options.budget),
        fuse_(options.fuse),
        ports_(options.ports),
        whole_trees_(options.whole_trees),
        by_hops_(options.by_hops),
        shared_(options.shared),
        instances_(options.instances),
        ranks_(static_cast<size_t>(pieces.collective.nranks)) {}

  WovenPlan run() {
    find_parents();
    find_fifos();
    sort_transfers();
    form_messages();
    form_starts();
    link_messages();
    choose_lanes();
    take_turns();
    return std::move(plan_);
  }

 private:
  void find_fifos() {
    std::unordered_map<uint64_t, std::vector<int32_t>> between;
    fifo_of_.reserve(transfers_.size());
    for (size_t i = 0; i < transfers_.size(); i++) {
      const Transfer& t = transfers_[i];
      const int32_t group = (by_hops_ ? depth_[i] : 0) * instances_ +
                            t.piece % pieces_.chunks % instances_;
      auto& known = between[static_cast<uint64_t>(t.from) << 32 | static_cast<uint32_t>(t.to)];
      const auto same = std::find_if(known.begin(), known.end(), [&](int32_t f) {
        const WovenFifo& fifo = plan_.fifos[static_cast<size_t>(f)];
        return fifo.group == group && fifo.links == t.links;
      });
      if (same != known.end()) {
        fifo_of_.push_back(*same);
        continue;
      }
      fifo_of_.push_back(static_cast<int32_t>(plan_.fifos.size()));
      known.push_back(fifo_of_.back());
      plan_.fifos.push_back({t.from, t.to, group, t.links});
    }
  }

  // The transfer that brought a transfer's piece to where it starts, and how many came before.
  void find_parents() {
    const size_t n = transfers_.size();
    for (const Transfer& t : transfers_)
      if (t.from < 0 || t.to < 0 || static_cast<size_t>(t.from) >= ranks_ ||
          static_cast<size_t>(t.to) >= ranks_ || t.from == t.to || t.piece < 0 ||
          t.piece >= pieces_.count())
        fail(ncclInvalidUsage, "a transfer of piece {} from rank {} to rank {} of {}", t.piece,
             t.from, t.to, ranks_);
    std::vector<size_t> by_piece(n);
    std::iota(by_piece.begin(), by_piece.end(), size_t{0});
    std::stable_sort(by_piece.begin(), by_piece.end(),
                     [&](size_t a, size_t b) { return transfers_[a].piece < transfers_[b].piece; });
    parent_.assign(n, -1);
    depth_.assign(n, -1);
    std::vector<int64_t> arrival(ranks_, -1);
    std::vector<size_t> chain;
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
      const int32_t piece = transfers_[by_piece[begin]].piece;
      for (; end < n && transfers_[by_piece[end]].piece == piece; end++) {
        int64_t& at = arrival[static_cast<size_t>(transfers_[by_piece[end]].to)];
        if (at >= 0 || transfers_[by_piece[end]].to == pieces_.origin(piece))
          fail(ncclInvalidUsage, "piece {} comes to rank {} twice", piece,
               transfers_[by_piece[end]].to);
        at = static_cast<int64_t>(by_piece[end]);
      }
      for (size_t i = begin; i < end; i++) {
        chain.clear();
        size_t t = by_piece[i];
        while (depth_[t] < 0) {
          chain.push_back(t);
          const Transfer& transfer = transfers_[t];
          if (transfer.from == pieces_.origin(piece)) break;
          parent_[t] = arrival[static_cast<size_t>(transfer.from)];
          if (parent_[t] < 0 || chain.size() > ranks_ ||
              transfers_[static_cast<size_t>(parent_[t])].begin_us > transfer.begin_us)
            fail(ncclInvalidUsage, "rank {} sends piece {} on to rank {} before it has it",
                 transfer.from, piece, transfer.to);
          t = static_cast<size_t>(parent_[t]);
        }
        for (; !chain.empty(); chain.pop_back()) {
          const int64_t parent = parent_[chain.back()];
          depth_[chain.back()] = parent < 0 ? 0 : depth_[static_cast<size_t>(parent)] + 1;
        }
      }
      for (size_t i = begin; i < end; i++)
        arrival[static_cast<size_t>(transfers_[by_piece[i]].to)] = -1;
    }
  }

  void sort_transfers() {
    sorted_.resize(transfers_.size());
    std::iota(sorted_.begin(), sorted_.end(), size_t{0});
    std::stable_sort(sorted_.begin(), sorted_.end(), [&](size_t a, size_t b) {
      const Transfer &x = transfers_[a], &y = transfers_[b];
      if (x.begin_us != y.begin_us) return x.begin_us < y.begin_us;
      if (depth_[a] != depth_[b]) return depth_[a] < depth_[b];
      if (fifo_of_[a] != fifo_of_[b]) return fifo_of_[a] < fifo_of_[b];
      return x.piece < y.piece;
    });
  }

  // Whether the parent came at an earlier time, so that what brings it cannot wait for its child.
  bool settled(size_t t) const {
    return parent_[t] < 0 ||
           transfers_[static_cast<size_t>(parent_[t])].begin_us < transfers_[t].begin_us;
  }

  // Sums must be complete for all pieces of a message or for none, so for reductions pieces travel
  // together all the way or not at all. Per piece: whether the next one takes the same tree.
  void compare_trees() {
    const auto n = static_cast<size_t>(pieces_.count());
    std::vector<std::vector<std::pair<int32_t, double>>> trees(n);
    for (const size_t t : sorted_)
      trees[static_cast<size_t>(transfers_[t].piece)].emplace_back(fifo_of_[t],
                                                                   transfers_[t].begin_us);
    like_next_.resize(n);
    for (size_t p = 0; p + 1 < n; p++) like_next_[p] = trees[p] == trees[p + 1];
  }

  bool together(int32_t piece, const Transfer& transfer) const {
    if (whole_trees_ && !like_next_[static_cast<size_t>(piece)]) return false;
    return pieces_.side_by_side(piece, transfer.from) && pieces_.side_by_side(piece, transfer.to);
  }

  void form_messages() {
    if (whole_trees_) compare_trees();
    message_of_.resize(transfers_.size());
    for (size_t i = 0; i < sorted_.size(); i++) {
      const size_t t = sorted_[i];
      const Transfer& transfer = transfers_[t];
      bool joins = false;
      if (!messages_.empty()) {
        const Message& last = messages_.back();
        const size_t before = sorted_[i - 1];
        joins = last.fifo == fifo_of_[t] && last.first + last.count == transfer.piece &&
                transfers_[before].begin_us == transfer.begin_us && settled(t) && settled(before) &&
                together(transfer.piece - 1, transfer);
      }
      if (!joins) messages_.push_back({fifo_of_[t], transfer.piece, 0, i, i});
      messages_.back().count++;
      messages_.back().end = i + 1;
      message_of_[t] = static_cast<int32_t>(messages_.size()) - 1;
    }
  }

  // Groups own pieces as the messages that send them do, where these agree.
  void form_starts() {
    const auto n = static_cast<size_t>(pieces_.count());
    std::vector<int32_t> first(n, -1);
    std::vector<int32_t> count(n, 1);
    std::vector<bool> mixed(n, false);
    const auto roots = [&](auto visit) {
      for (const Message& m : messages_)
        if (parent_[sorted_[m.begin]] < 0)
          for (int32_t p = m.first; p < m.first + m.count; p++) visit(m, static_cast<size_t>(p));
    };
    roots([&](const Message& m, size_t p) {
      if (first[p] >= 0 && (first[p] != m.first || count[p] != m.count)) mixed[p] = true;
      first[p] = m.first;
      count[p] = m.count;
    });
    for (bool changed = true; changed;) {
      changed = false;
      roots([&](const Message& m, size_t p) {
        if (!mixed[p]) return;
        for (int32_t q = m.first; q < m.first + m.count; q++)
          if (!mixed[static_cast<size_t>(q)]) changed = mixed[static_cast<size_t>(q)] = true;
      });
    }
    start_of_.assign(n, -1);
    for (size_t p = 0; p < n; p++) {
      const auto piece = static_cast<int32_t>(p);
      const int32_t rank = pieces_.origin(piece);
      const bool sent = first[p] >= 0;
      if (!sent && !pieces_.needed(piece, rank)) continue;
      // Pieces that go nowhere are copied together.
      const bool joins = p > 0 && start_of_[p - 1] >= 0 && pieces_.origin(piece - 1) == rank &&
                         (sent ? !mixed[p] && first[p] == first[p - 1] && first[p] != piece
                               : first[p - 1] < 0 && pieces_.side_by_side(piece - 1, rank));
      if (!joins) starts_.push_back({rank, piece, 0});
      starts_.back().count++;
      start_of_[p] = static_cast<int32_t>(starts_.size()) - 1;
    }
  }

  void link_messages() {
    for (Message& m : messages_) {
      const size_t t = sorted_[m.begin];
      if (parent_[t] < 0) {
        const Start& start = starts_[static_cast<size_t>(start_of_[static_cast<size_t>(m.first)])];
        if (start.first == m.first && start.count == m.count)
          m.parent = start_of_[static_cast<size_t>(m.first)];
        continue;
      }
      const int32_t parent = message_of_[static_cast<size_t>(parent_[t])];
      const Message& p = messages_[static_cast<size_t>(parent)];
      if (p.first == m.first && p.count == m.count) m.parent = parent;
    }
  }

  bool own(const Message& m) const { return parent_[sorted_[m.begin]] < 0; }

  // A lane that receives from one FIFO (or has its pieces), and what it costs.
  struct Lane {
    int32_t source = -1;        // FIFO, -1: what the rank has
    std::vector<int32_t> outs;  // FIFOs that send from here
    double busy = 0;
  };

  void choose_lanes() {
    rank_lanes_.resize(ranks_);
    lane_of_in_.assign(plan_.fifos.size(), -1);
    lane_of_out_.assign(plan_.fifos.size(), -1);
    sent_by_.resize(plan_.fifos.size());
    for (size_t i = 0; i < messages_.size(); i++)
      sent_by_[static_cast<size_t>(messages_[i].fifo)].push_back(static_cast<int32_t>(i));
    std::vector<std::vector<int32_t>> incoming(ranks_), outgoing(ranks_);
    for (size_t f = 0; f < plan_.fifos.size(); f++) {
      incoming[static_cast<size_t>(plan_.fifos[f].to)].push_back(static_cast<int32_t>(f));
      outgoing[static_cast<size_t>(plan_.fifos[f].from)].push_back(static_cast<int32_t>(f));
    }
    for (size_t r = 0; r < ranks_; r++) {
      auto& lanes = rank_lanes_[r];
      lanes.push_back({});
      for (const int32_t f : incoming[r]) {
        const int32_t lane = mirrored_ports() ? port_lane(r, f, true) : -1;
        lane_of_in_[static_cast<size_t>(f)] = lane < 0 ? static_cast<int32_t>(lanes.size()) : lane;
        if (lane < 0) lanes.push_back({f, {}, 0});
      }
      for (const int32_t f : outgoing[r]) {
        const int32_t lane = fuse_                                  ? best_lane(r, f)
                             : ports_ && (!whole_trees_ || shared_) ? port_lane(r, f, false)
                                                                    : -1;
        if (lane < 0) {
          lane_of_out_[static_cast<size_t>(f)] = static_cast<int32_t>(lanes.size());
          lanes.push_back({-2, {f}, 0});
          continue;
        }
        lane_of_out_[static_cast<size_t>(f)] = lane;
      }
    }
    place_starts();
    for (Message& m : messages_) {
      if (m.parent < 0) continue;
      const int32_t lane = own(m) ? starts_[static_cast<size_t>(m.parent)].lane : source_lane(m);
      m.fused = fuse_ && lane_of_out_[static_cast<size_t>(m.fifo)] == lane;
    }
  }

  // Turned round, what arrives is what is sent, so there arriving FIFOs share lanes.
  bool mirrored_ports() const { return ports_ && !fuse_ && whole_trees_; }

  // The lane of a FIFO that leaves, or arrives, over the same link, so that everything crosses the
  // link in the order it is meant to; -1 if there is none yet.
  int32_t port_lane(size_t rank, int32_t fifo, bool arriving) const {
    const auto& lanes = rank_lanes_[rank];
    const WovenFifo& mine = plan_.fifos[static_cast<size_t>(fifo)];
    for (size_t l = 0; l < lanes.size() && !mine.links.empty(); l++) {
      if (arriving ? lanes[l].source < 0 : lanes[l].source != -2) continue;
      const WovenFifo& other =
          plan_.fifos[static_cast<size_t>(arriving ? lanes[l].source : lanes[l].outs[0])];
      if (!other.links.empty() && other.group == mine.group &&
          (arriving ? other.links.back() == mine.links.back()
                    : other.links.front() == mine.links.front()))
        return static_cast<int32_t>(l);
    }
    return -1;
  }

  // What a rank has from the start can begin in any lane: in the one that sends most of it.
  void place_starts() {
    std::vector<std::vector<int32_t>> sent(starts_.size());
    for (const Message& m : messages_)
      if (own(m) && m.parent >= 0)
        sent[static_cast<size_t>(m.parent)].push_back(lane_of_out_[static_cast<size_t>(m.fifo)]);
    std::vector<int32_t> usual(ranks_, 0);
    for (size_t i = 0; i < starts_.size(); i++) {
      auto& lanes = sent[i];
      std::sort(lanes.begin(), lanes.end());
      size_t most = 0;
      for (size_t begin = 0, end = 0; begin < lanes.size(); begin = end) {
        while (end < lanes.size() && lanes[end] == lanes[begin]) end++;
        if (end - begin <= most) continue;
        most = end - begin;
        starts_[i].lane = lanes[begin];
        usual[static_cast<size_t>(starts_[i].rank)] = lanes[begin];
      }
    }
    for (size_t i = 0; i < starts_.size(); i++)
      if (sent[i].empty()) starts_[i].lane = usual[static_cast<size_t>(starts_[i].rank)];
  }

  int32_t source_lane(const Message& m) const {
    return own(m) ? 0 : lane_of_in_[fifo_of_[static_cast<size_t>(parent_[sorted_[m.begin]])]];
  }

  // The lane that most of the FIFO's messages could be passed on from, if it has the time.
  int32_t best_lane(size_t rank, int32_t fifo) {
    auto& lanes = rank_lanes_[rank];
    std::vector<int32_t> votes(lanes.size(), 0);
    for (const int32_t m : sent_by_[static_cast<size_t>(fifo)])
      if (const Message& message = messages_[static_cast<size_t>(m)]; message.parent >= 0)
        votes[static_cast<size_t>(source_lane(message))] += message.count;
    const auto best = std::max_element(votes.begin(), votes.end());
    if (*best == 0) return -1;
    const auto index = static_cast<int32_t>(best - votes.begin());
    Lane& lane = lanes[static_cast<size_t>(index)];
    // A message waits for its link, and the lane with it: one lane keeps one link busy, not two.
    if (!lane.outs.empty() && first_link(lane.outs[0]) != first_link(fifo)) return -1;
    lane.outs.push_back(fifo);
    const double busy = busy_time(lane, index);
    if (busy > budget_ * 1.02) {
      lane.outs.pop_back();
      return -1;
    }
    lane.busy = busy;
    return index;
  }

  int32_t first_link(int32_t fifo) const {
    const auto& links = plan_.fifos[static_cast<size_t>(fifo)].links;
    return links.empty() ? -1 - fifo : links.front();
  }

  // A step is at work until what it sends has left over the links next to the GPU; receiving alone
  // takes as long as the data comes, except for what waits in the FIFO.
  double busy_time(const Lane& lane, int32_t index) const {
    std::unordered_map<int32_t, std::vector<std::pair<int32_t, double>>> by_parent;
    double busy = 0;
    for (const int32_t f : lane.outs) {
      const int32_t link = first_link(f);
      const double cost = link < 0 ? 1.0 : seconds_per_byte(machine_, link);
      for (const int32_t m : sent_by_[static_cast<size_t>(f)]) {
        const Message& message = messages_[static_cast<size_t>(m)];
        if (message.parent < 0 || source_lane(message) != index) {
          busy += cost * message.count;
          continue;
        }
        auto& step = by_parent[message.parent];
        const auto same = std::find_if(step.begin(), step.end(),
                                       [&](const auto& entry) { return entry.first == link; });
        if (same == step.end())
          step.emplace_back(link, cost * message.count);
        else
          same->second += cost * message.count;
      }
    }
    for (const auto& [parent, step] : by_parent) {
      double longest = 0;
      for (const auto& [link, time] : step) longest = std::max(longest, time);
      busy += longest;
    }
    if (lane.source < 0) return busy;
    const auto& received = sent_by_[static_cast<size_t>(lane.source)];
    size_t waits = 0;
    for (const int32_t m : received)
      if (by_parent.count(m) == 0 && ++waits > kPatience) {
        double slowest = 0;
        for (const int32_t l : plan_.fifos[static_cast<size_t>(lane.source)].links)
          slowest = std::max(slowest, seconds_per_byte(machine_, l));
        busy += slowest * messages_[static_cast<size_t>(m)].count;
      }
    return busy;
  }

  // Lets the messages run one step after the other, each at its time: a send at the time of its
  // transfer, a receipt when the first child of the message is due. What must go earlier because
  // its FIFO is full, or because of what is behind it in the FIFO, goes earlier; so the order is
  // one that FIFOs of kWaiting messages can keep.
  void take_turns() {
    plan_.lanes.resize(ranks_);
    for (size_t r = 0; r < ranks_; r++) plan_.lanes[r].resize(rank_lanes_[r].size());
    message_outs_.resize(messages_.size());
    start_outs_.resize(starts_.size());
    waiting_.resize(plan_.fifos.size());
    const size_t n = messages_.size();
    // Events of one time: what is received, then what begins, then what is sent.
    std::vector<std::vector<int32_t>> received(n), begun(n);
    std::vector<size_t> due(n, n);
    for (size_t i = 0; i < n; i++) {
      const Message& m = messages_[i];
      if (m.fused)
        (own(m) ? start_outs_ : message_outs_)[static_cast<size_t>(m.parent)].push_back(
            static_cast<int32_t>(i));
      for (size_t t = m.begin; t < m.end; t++)
        if (const int64_t parent = parent_[sorted_[t]]; parent >= 0) {
          size_t& time = due[static_cast<size_t>(message_of_[static_cast<size_t>(parent)])];
          time = std::min(time, i);
        }
    }
    for (size_t i = 0; i < n; i++)
      if (due[i] < n) received[due[i]].push_back(static_cast<int32_t>(i));
    for (size_t s = 0; s < starts_.size(); s++) {
      if (!start_outs_[s].empty())
        begun[static_cast<size_t>(start_outs_[s].front())].push_back(static_cast<int32_t>(s));
      else if (pieces_.needed(starts_[s].first, starts_[s].rank))
        begin(static_cast<int32_t>(s));
    }
    due_.resize(n);
    for (size_t i = 0; i < n; i++) due_[i] = due[i] < n && !mirrored_ports();
    for (size_t i = 0; i < n; i++) {
      for (const int32_t m : received[i]) receive_up_to(m);
      for (const int32_t s : begun[i]) begin(s);
      if (!messages_[i].fused) {
        const Message& m = messages_[i];
        const auto fifo = static_cast<size_t>(m.fifo);
        auto& steps = lane(plan_.fifos[fifo].from, lane_of_out_[fifo]);
        // What goes to several ranks one after the other goes in one step.
        if (!steps.empty() && !steps.back().begins && steps.back().first == m.first &&
            steps.back().count == m.count)
          steps.back().outs.push_back(m.fifo);
        else
          steps.push_back({m.first, m.count, -1, false, turn_++, {m.fifo}});
        arrive(static_cast<int32_t>(i));
      }
    }
    for (auto& lanes : plan_.lanes)
      lanes.erase(
          std::remove_if(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.empty(); }),
          lanes.end());
  }

  std::vector<WovenStep>& lane(int32_t rank, int32_t number) {
    return plan_.lanes[static_cast<size_t>(rank)][static_cast<size_t>(number)];
  }

  // A message that no child waits for is taken at once; in lanes of ports all are, for the order.
  void arrive(int32_t message) {
    const int32_t fifo = messages_[static_cast<size_t>(message)].fifo;
    auto& waiting = waiting_[static_cast<size_t>(fifo)];
    waiting.push_back(message);
    if (!due_[static_cast<size_t>(message)]) receive_up_to(message);
    // Calls are nested as deep as full FIFOs hang on each other, which is not deep.
    while (waiting.size() > kWaiting) receive(waiting.front());
  }

  void receive_up_to(int32_t message) {
    const auto& waiting =
        waiting_[static_cast<size_t>(messages_[static_cast<size_t>(message)].fifo)];
    while (std::find(waiting.begin(), waiting.end(), message) != waiting.end())
      receive(waiting.front());
  }

  void receive(int32_t message) {
    const Message& m = messages_[static_cast<size_t>(message)];
    const auto fifo = static_cast<size_t>(m.fifo);
    waiting_[fifo].pop_front();
    emit({m.first, m.count, m.fifo, true, 0, {}}, plan_.fifos[fifo].to, lane_of_in_[fifo],
         message_outs_[static_cast<size_t>(message)]);
  }

  void begin(int32_t start) {
    const Start& s = starts_[static_cast<size_t>(start)];
    emit({s.first, s.count, -1, true, 0, {}}, s.rank, s.lane,
         start_outs_[static_cast<size_t>(start)]);
  }

  void emit(WovenStep step, int32_t rank, int32_t number, const std::vector<int32_t>& outs) {
    for (const int32_t m : outs) step.outs.push_back(messages_[static_cast<size_t>(m)].fifo);
    step.turn = turn_++;
    lane(rank, number).push_back(std::move(step));
    for (const int32_t m : outs) arrive(m);
  }

  const Pieces& pieces_;
  const std::vector<Transfer>& transfers_;
  const Machine* machine_;
  const double budget_;
  const bool fuse_, ports_, whole_trees_, by_hops_, shared_;
  const int32_t instances_;
  const size_t ranks_;
  WovenPlan plan_;
  // per transfer
  std::vector<int32_t> fifo_of_, depth_, message_of_;
  std::vector<int64_t> parent_;
  std::vector<size_t> sorted_;
  std::vector<bool> like_next_;    // per piece
  std::vector<Message> messages_;  // parents before children
  std::vector<Start> starts_;
  std::vector<int32_t> start_of_;  // per piece
  std::vector<std::vector<Lane>> rank_lanes_;
  std::vector<int32_t> lane_of_in_, lane_of_out_;  // per FIFO
  std::vector<std::vector<int32_t>> sent_by_;      // per FIFO, messages in order
  std::vector<std::vector<int32_t>> message_outs_,
      start_outs_;                            // messages sent in one step with it
  std::vector<bool> due_;                     // per message: some child waits for it
  std::vector<std::deque<int32_t>> waiting_;  // per FIFO, messages
  int64_t turn_ = 0;
};

}  // namespace

int32_t Pieces::count() const {
  const int n = collective.nranks;
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
      return chunks;
    case CollectiveKind::kAllToAll:
      return n * n * chunks;
    default:
      return n * chunks;
  }
}

int32_t Pieces::origin(int32_t piece) const {
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return collective.root;
    case CollectiveKind::kAllToAll:
      return piece / chunks / collective.nranks;
    default:
      return piece / chunks;
  }
}

bool Pieces::needed(int32_t piece, int32_t rank) const {
  switch (collective.kind) {
    case CollectiveKind::kGather:
      return rank == collective.root;
    case CollectiveKind::kScatter:
      return rank == piece / chunks;
    case CollectiveKind::kAllToAll:
      return rank == piece / chunks % collective.nranks;
    default:
      return true;
  }
}

bool Pieces::side_by_side(int32_t piece, int32_t rank) const {
  const int32_t next = piece + 1;
  if (next >= count()) return false;
  if (piece / chunks == next / chunks) return true;
  const bool here = origin(piece) == rank;
  if (here != (origin(next) == rank)) return false;
  if (here) return true;
  const bool output = needed(piece, rank);
  return output == needed(next, rank) &&
         (!output || collective.kind == CollectiveKind::kAllGather ||
          collective.kind == CollectiveKind::kGather);
}

double busiest_link(const Machine* machine, const Routing& routing) {
  std::unordered_map<int32_t, double> load;
  double most = 0;
  for (const auto* transfers : {&routing.transfers, &routing.reduction})
    for (const Transfer& t : *transfers)
      for (const int32_t l : t.links)
        most = std::max(most, load[l] += seconds_per_byte(machine, l));
  return most;
}

WovenPlan plan_lanes(const Pieces& pieces, const std::vector<Transfer>& transfers,
                     const LaneOptions& options) {
  return Planner(pieces, transfers, options).run();
}

}  // namespace weft
