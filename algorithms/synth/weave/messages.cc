// See messages.h.
#include "algorithms/synth/weave/messages.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "src/base/error.h"

namespace weft {
namespace {

class MessageFormer {
 public:
  MessageFormer(const Pieces& pieces, const std::vector<Transfer>& transfers,
                const LaneOptions& options)
      : pieces_(pieces),
        transfers_(transfers),
        whole_trees_(options.whole_trees),
        by_hops_(options.by_hops),
        instances_(options.instances),
        ranks_(static_cast<size_t>(pieces.collective.nranks)) {}

  WovenMessages run() {
    find_parents();
    find_fifos();
    sort_transfers();
    form_messages();
    form_starts();
    link_messages();
    return std::move(formed_);
  }

 private:
  void find_fifos() {
    std::unordered_map<uint64_t, std::vector<int32_t>> between;
    fifo_of_.reserve(transfers_.size());
    for (size_t i = 0; i < transfers_.size(); i++) {
      const Transfer& t = transfers_[i];
      const int32_t group =
          (by_hops_ ? depth_[i] : 0) * instances_ + t.piece % pieces_.chunks % instances_;
      auto& known = between[static_cast<uint64_t>(t.from) << 32 | static_cast<uint32_t>(t.to)];
      const auto same = std::find_if(known.begin(), known.end(), [&](int32_t f) {
        const WovenFifo& fifo = formed_.fifos[static_cast<size_t>(f)];
        return fifo.group == group && fifo.links == t.links;
      });
      if (same != known.end()) {
        fifo_of_.push_back(*same);
        continue;
      }
      fifo_of_.push_back(static_cast<int32_t>(formed_.fifos.size()));
      known.push_back(fifo_of_.back());
      formed_.fifos.push_back({t.from, t.to, group, t.links});
    }
  }

  // Finds the transfer that brought a transfer's piece to its sender, and the depth.
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

  // Whether the parent begins earlier, so that it cannot wait for its child.
  bool settled(size_t t) const {
    return parent_[t] < 0 ||
           transfers_[static_cast<size_t>(parent_[t])].begin_us < transfers_[t].begin_us;
  }

  // Sums must be complete for all pieces of a message or for none. So in reductions pieces travel
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
    return pieces_.contiguous(piece, transfer.from) && pieces_.contiguous(piece, transfer.to);
  }

  void form_messages() {
    if (whole_trees_) compare_trees();
    message_of_.resize(transfers_.size());
    for (size_t i = 0; i < sorted_.size(); i++) {
      const size_t t = sorted_[i];
      const Transfer& transfer = transfers_[t];
      bool joins = false;
      if (!formed_.messages.empty()) {
        const WovenMessage& last = formed_.messages.back();
        const size_t before = sorted_[i - 1];
        joins = last.fifo == fifo_of_[t] && last.first + last.count == transfer.piece &&
                transfers_[before].begin_us == transfer.begin_us && settled(t) && settled(before) &&
                together(transfer.piece - 1, transfer);
      }
      if (!joins) {
        formed_.messages.push_back({fifo_of_[t], transfer.piece, 0});
        begin_.push_back(i);
      }
      formed_.messages.back().count++;
      message_of_[t] = static_cast<int32_t>(formed_.messages.size()) - 1;
    }
  }

  // Groups own pieces like the messages that send them, if these agree.
  void form_starts() {
    const auto n = static_cast<size_t>(pieces_.count());
    std::vector<int32_t> first(n, -1);
    std::vector<int32_t> count(n, 1);
    std::vector<bool> mixed(n, false);
    const auto roots = [&](auto visit) {
      for (size_t i = 0; i < formed_.messages.size(); i++) {
        const WovenMessage& m = formed_.messages[i];
        if (parent_[sorted_[begin_[i]]] < 0)
          for (int32_t p = m.first; p < m.first + m.count; p++) visit(m, static_cast<size_t>(p));
      }
    };
    roots([&](const WovenMessage& m, size_t p) {
      if (first[p] >= 0 && (first[p] != m.first || count[p] != m.count)) mixed[p] = true;
      first[p] = m.first;
      count[p] = m.count;
    });
    for (bool changed = true; changed;) {
      changed = false;
      roots([&](const WovenMessage& m, size_t p) {
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
      // Pieces that are not sent are copied together.
      const bool joins = p > 0 && start_of_[p - 1] >= 0 && pieces_.origin(piece - 1) == rank &&
                         (sent ? !mixed[p] && first[p] == first[p - 1] && first[p] != piece
                               : first[p - 1] < 0 && pieces_.contiguous(piece - 1, rank));
      if (!joins) formed_.starts.push_back({rank, piece, 0});
      formed_.starts.back().count++;
      start_of_[p] = static_cast<int32_t>(formed_.starts.size()) - 1;
    }
  }

  // Where each message's pieces come from, and which message needs them first.
  void link_messages() {
    auto& messages = formed_.messages;
    for (size_t i = 0; i < messages.size(); i++) {
      WovenMessage& m = messages[i];
      const size_t t = sorted_[begin_[i]];
      if (parent_[t] < 0) {
        const int32_t number = start_of_[static_cast<size_t>(m.first)];
        const WovenStart& start = formed_.starts[static_cast<size_t>(number)];
        if (start.first == m.first && start.count == m.count) m.parent = number;
        continue;
      }
      m.source = fifo_of_[static_cast<size_t>(parent_[t])];
      const int32_t parent = message_of_[static_cast<size_t>(parent_[t])];
      const WovenMessage& p = messages[static_cast<size_t>(parent)];
      if (p.first == m.first && p.count == m.count) m.parent = parent;
    }
    for (const size_t t : sorted_)
      if (parent_[t] >= 0) {
        WovenMessage& brought =
            messages[static_cast<size_t>(message_of_[static_cast<size_t>(parent_[t])])];
        if (brought.due < 0) brought.due = message_of_[t];
      }
  }

  const Pieces& pieces_;
  const std::vector<Transfer>& transfers_;
  const bool whole_trees_, by_hops_;
  const int32_t instances_;
  const size_t ranks_;
  WovenMessages formed_;
  // per transfer
  std::vector<int32_t> fifo_of_, depth_, message_of_;
  std::vector<int64_t> parent_;
  std::vector<size_t> sorted_;
  std::vector<size_t> begin_;      // per message: its first transfer, in sorted order
  std::vector<bool> like_next_;    // per piece
  std::vector<int32_t> start_of_;  // per piece
};

}  // namespace

WovenMessages form_messages(const Pieces& pieces, const std::vector<Transfer>& transfers,
                            const LaneOptions& options) {
  return MessageFormer(pieces, transfers, options).run();
}

}  // namespace weft
