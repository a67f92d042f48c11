// See problem.h.
#include "algorithms/synth/taccl/problem.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <string>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr size_t kMostSymmetries = 4096;

Collective mirror(Collective c) {
  if (c.kind == CollectiveKind::kReduceScatter || c.kind == CollectiveKind::kAllReduce)
    c.kind = CollectiveKind::kAllGather;
  if (c.kind == CollectiveKind::kReduce) c.kind = CollectiveKind::kBroadcast;
  return c;
}

std::vector<int> everybody_but(int ranks, int source) {
  std::vector<int> result;
  for (int r = 0; r < ranks; r++)
    if (r != source) result.push_back(r);
  return result;
}

std::vector<TacclPiece> pieces_of(const Collective& c, int chunks) {
  std::vector<TacclPiece> pieces;
  const auto add = [&](int block, int source, const std::vector<int>& wanted) {
    for (int chunk = 0; chunk < chunks; chunk++)
      pieces.push_back({block * chunks + chunk, source, wanted});
  };
  for (int r = 0; r < c.nranks; r++) switch (c.kind) {
      case CollectiveKind::kAllGather:
        add(r, r, everybody_but(c.nranks, r));
        break;
      case CollectiveKind::kBroadcast:
        if (r == 0) add(0, c.root, everybody_but(c.nranks, c.root));
        break;
      case CollectiveKind::kAllToAll:
        for (int to = 0; to < c.nranks; to++)
          if (to != r) add(r * c.nranks + to, r, {to});
        break;
      case CollectiveKind::kGather:
        if (r != c.root) add(r, r, {c.root});
        break;
      case CollectiveKind::kScatter:
        if (r != c.root) add(r, c.root, {r});
        break;
      default:
        fail(ncclInvalidUsage, "engine taccl does not make {}", name(c.kind));
    }
  return pieces;
}

std::vector<uint8_t> allowed_links(const LogicalTopology& t, const TacclPiece& piece) {
  std::vector<uint8_t> wanted_host(static_cast<size_t>(t.hosts), 0);
  for (const int r : piece.wanted)
    wanted_host[static_cast<size_t>(t.host_of[static_cast<size_t>(r)])] = 1;
  const int home = t.host_of[static_cast<size_t>(piece.source)];
  const auto& senders =
      t.senders[static_cast<size_t>(t.local_of[static_cast<size_t>(piece.source)])];
  std::vector<uint8_t> allowed(t.links.size(), 0);
  for (size_t l = 0; l < t.links.size(); l++) {
    const LogicalLink& link = t.links[l];
    const int to_host = t.host_of[static_cast<size_t>(link.to)];
    if (!link.remote) {
      allowed[l] = to_host == home || wanted_host[static_cast<size_t>(to_host)] != 0;
      continue;
    }
    const int sender = t.local_of[static_cast<size_t>(link.from)];
    allowed[l] =
        t.host_of[static_cast<size_t>(link.from)] == home &&
        wanted_host[static_cast<size_t>(to_host)] != 0 &&
        (senders.empty() || std::find(senders.begin(), senders.end(), sender) != senders.end());
  }
  return allowed;
}

std::vector<std::vector<int>> hop_counts(const LogicalTopology& t,
                                         const std::vector<uint8_t>& allowed) {
  const auto n = static_cast<size_t>(t.ranks);
  std::vector<std::vector<int>> hops(n, std::vector<int>(n, TacclRule::kNoWay));
  for (size_t source = 0; source < n; source++) {
    std::queue<size_t> queue({source});
    hops[source][source] = 0;
    while (!queue.empty()) {
      const size_t at = queue.front();
      queue.pop();
      for (const int32_t l : t.leaving[at]) {
        const auto to = static_cast<size_t>(t.links[static_cast<size_t>(l)].to);
        if (allowed[static_cast<size_t>(l)] == 0 || hops[source][to] != TacclRule::kNoWay) continue;
        hops[source][to] = hops[source][at] + 1;
        queue.push(to);
      }
    }
  }
  return hops;
}

// The image of pieces and links under a rank permutation. False if it is no symmetry of the
// collective or leaves a piece in place.
bool extend(const TacclProblem& p, const std::map<int32_t, int32_t>& index, TacclSymmetry& s) {
  const int n = p.collective.nranks;
  const auto like = [&](int rank) { return s.rank[static_cast<size_t>(rank)]; };
  if (p.collective.rooted()) return false;
  for (const TacclPiece& piece : p.pieces) {
    const int block = piece.id / p.chunks;
    const int image = p.collective.kind == CollectiveKind::kAllToAll
                          ? like(block / n) * n + like(block % n)
                          : like(block);
    if (image == block) return false;
    s.piece.push_back(index.at(image * p.chunks + piece.id % p.chunks));
  }
  for (const LogicalLink& link : p.topology.links)
    s.link.push_back(p.topology.link(like(link.from), like(link.to)));
  return true;
}

void add_group(TacclProblem& p) {
  std::map<int32_t, int32_t> index;
  for (size_t i = 0; i < p.pieces.size(); i++) index[p.pieces[i].id] = static_cast<int32_t>(i);
  TacclSymmetry identity;
  const auto count = [](auto& list, size_t size) {
    list.resize(size);
    std::iota(list.begin(), list.end(), 0);
  };
  count(identity.rank, static_cast<size_t>(p.topology.ranks));
  count(identity.piece, p.pieces.size());
  count(identity.link, p.topology.links.size());
  p.symmetries.push_back(identity);
  std::set<std::vector<int32_t>> known{identity.rank};
  bool free = true;
  for (size_t done = 0; free && done < p.symmetries.size(); done++)
    for (const std::vector<int>& generator : p.topology.symmetries) {
      TacclSymmetry next;
      for (const int32_t r : p.symmetries[done].rank)
        next.rank.push_back(generator[static_cast<size_t>(r)]);
      if (!known.insert(next.rank).second) continue;
      free = known.size() <= kMostSymmetries && extend(p, index, next);
      if (!free) break;
      p.symmetries.push_back(std::move(next));
    }
  if (!free) p.symmetries.resize(1);
  std::vector<bool> led(p.pieces.size(), false);
  for (size_t i = 0; i < p.pieces.size(); i++) {
    if (led[i]) continue;
    p.leaders.push_back(static_cast<int32_t>(i));
    for (const TacclSymmetry& s : p.symmetries) led[static_cast<size_t>(s.piece[i])] = true;
  }
}

}  // namespace

bool TacclProblem::candidate(int32_t piece, int32_t link) const {
  const TacclPiece& p = pieces[static_cast<size_t>(piece)];
  const LogicalLink& l = topology.links[static_cast<size_t>(link)];
  const auto& ranks = near[static_cast<size_t>(piece)];
  return rules[static_cast<size_t>(p.rule)].allowed[static_cast<size_t>(link)] != 0 &&
         l.to != p.source && ranks[static_cast<size_t>(l.from)] != 0 &&
         ranks[static_cast<size_t>(l.to)] != 0;
}

TacclProblem taccl_problem(const Collective& collective, int chunks, LogicalTopology topology) {
  TacclProblem p;
  p.collective = mirror(collective);
  p.chunks = chunks;
  p.topology = std::move(topology);
  if (collective.nranks != p.topology.ranks)
    fail(ncclInvalidArgument, "{}: {} ranks, but the collective has {}", p.topology.name,
         p.topology.ranks, collective.nranks);
  p.pieces = pieces_of(p.collective, chunks);
  std::map<std::string, int32_t> known;
  for (TacclPiece& piece : p.pieces) {
    const std::vector<uint8_t> allowed = allowed_links(p.topology, piece);
    const auto [it, added] = known.emplace(std::string(allowed.begin(), allowed.end()),
                                           static_cast<int32_t>(p.rules.size()));
    if (added) p.rules.push_back({allowed, hop_counts(p.topology, allowed)});
    piece.rule = it->second;
    const auto& hops = p.rules[static_cast<size_t>(piece.rule)].hops;
    const auto source = static_cast<size_t>(piece.source);
    std::vector<uint8_t> near(static_cast<size_t>(p.topology.ranks), 0);
    for (const int to : piece.wanted) {
      const int distance = hops[source][static_cast<size_t>(to)];
      if (distance == TacclRule::kNoWay)
        fail(ncclInvalidArgument, "{}: the sketch leaves no way from rank {} to rank {}",
             p.topology.name, piece.source, to);
      for (size_t r = 0; r < near.size(); r++)
        if (hops[source][r] + hops[r][static_cast<size_t>(to)] == distance) near[r] = 1;
    }
    p.near.push_back(std::move(near));
  }
  add_group(p);
  return p;
}

}  // namespace weft
