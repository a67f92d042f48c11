// See logical_rules.h.
#include "algorithms/synth/taccl/logical_rules.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/error.h"

namespace weft {
namespace {

bool alike(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), 1e-9); }

void check_gpu(const Sketch& sketch, const std::string& element, int gpu, int gpus) {
  if (gpu >= gpus)
    fail(ncclInvalidArgument, "{}: {} names GPU {}, but hosts have GPUs 0 to {}", sketch.name,
         element, gpu, gpus - 1);
}

void check_gpus(const Sketch& sketch, int gpus) {
  for (size_t s = 0; s < sketch.switches.size(); s++)
    for (const int gpu : sketch.switches[s])
      check_gpu(sketch, fmt::format("intranode_sketch.switches[{}]", s), gpu, gpus);
  for (const auto& [map, name] : {std::pair(&sketch.connections, "internode_conn"),
                                  std::pair(&sketch.senders, "gpus_to_sender_rev_map")})
    for (const auto& [sender, list] : *map) {
      const std::string element = fmt::format("internode_sketch.{}[\"{}\"]", name, sender);
      check_gpu(sketch, element, sender, gpus);
      for (const int gpu : list) check_gpu(sketch, element, gpu, gpus);
    }
}

// Why an entry is no symmetry, or "".
std::string asymmetry(const LogicalTopology& t, const std::vector<int>& image) {
  const auto like = [&](int rank) { return image[static_cast<size_t>(rank)]; };
  std::vector<int32_t> resource_image(t.resources.size(), -1);
  std::vector<int32_t> resource_origin(t.resources.size(), -1);
  for (const LogicalLink& link : t.links) {
    const int32_t other = t.link(like(link.from), like(link.to));
    const std::string pair = fmt::format("link {}->{} would be like {}->{}", link.from, link.to,
                                         like(link.from), like(link.to));
    if (other < 0) return pair + ", which does not exist";
    const LogicalLink& found = t.links[static_cast<size_t>(other)];
    if (found.remote != link.remote || !alike(found.alpha_us, link.alpha_us) ||
        !alike(found.beta_us, link.beta_us) || found.resources.size() != link.resources.size())
      return pair + ", which costs something else";
    for (size_t i = 0; i < link.resources.size(); i++) {
      int32_t& forward = resource_image[static_cast<size_t>(link.resources[i])];
      int32_t& back = resource_origin[static_cast<size_t>(found.resources[i])];
      if ((forward >= 0 && forward != found.resources[i]) ||
          (back >= 0 && back != link.resources[i]))
        return pair + ", which shares its way with others";
      forward = found.resources[i];
      back = link.resources[i];
    }
  }
  for (int rank = 0; rank < t.ranks; rank++) {
    std::set<int> here, there;
    const auto host = static_cast<size_t>(t.host_of[static_cast<size_t>(rank)]);
    const auto other_host = static_cast<size_t>(t.host_of[static_cast<size_t>(like(rank))]);
    for (const int s : t.senders[static_cast<size_t>(t.local_of[static_cast<size_t>(rank)])])
      here.insert(like(t.rank_at[host][static_cast<size_t>(s)]));
    for (const int s : t.senders[static_cast<size_t>(t.local_of[static_cast<size_t>(like(rank))])])
      there.insert(t.rank_at[other_host][static_cast<size_t>(s)]);
    if (here != there)
      return fmt::format("rank {} would be like {}, whose data others send", rank, like(rank));
  }
  return "";
}

}  // namespace

LogicalTopology ranks_of_sketch(const Sketch& sketch, std::vector<std::vector<int>> rank_at) {
  LogicalTopology t;
  t.name = sketch.name;
  t.hosts = static_cast<int>(rank_at.size());
  if (sketch.hosts != t.hosts)
    fail(ncclInvalidArgument, "{}: nnodes is {}, but the machine has {} host{}", sketch.name,
         sketch.hosts, t.hosts, t.hosts == 1 ? "" : "s");
  const size_t gpus = rank_at[0].size();
  for (size_t h = 0; h < rank_at.size(); h++) {
    if (rank_at[h].size() != gpus)
      fail(ncclInvalidArgument,
           "{}: sketches are for equal hosts, but host {} has {} GPUs and "
           "host 0 has {}",
           sketch.name, h, rank_at[h].size(), gpus);
    t.ranks += static_cast<int>(gpus);
  }
  t.host_of.resize(static_cast<size_t>(t.ranks));
  t.local_of.resize(static_cast<size_t>(t.ranks));
  t.leaving.resize(static_cast<size_t>(t.ranks));
  for (size_t h = 0; h < rank_at.size(); h++)
    for (size_t l = 0; l < gpus; l++) {
      t.host_of[static_cast<size_t>(rank_at[h][l])] = static_cast<int>(h);
      t.local_of[static_cast<size_t>(rank_at[h][l])] = static_cast<int>(l);
    }
  t.rank_at = std::move(rank_at);
  check_gpus(sketch, static_cast<int>(gpus));
  t.senders.resize(gpus);
  for (const auto& [sender, list] : sketch.senders)
    for (const int gpu : list) t.senders[static_cast<size_t>(gpu)].push_back(sender);
  if (!sketch.senders.empty())
    for (size_t l = 0; l < gpus; l++)
      if (t.senders[l].empty())
        fail(ncclInvalidArgument,
             "{}: internode_sketch.gpus_to_sender_rev_map: nobody sends the "
             "data of GPU {}",
             sketch.name, l);
  t.own_first = sketch.own_first;
  t.intranode = sketch.intranode;
  if (!sketch.policies.empty()) t.policy = sketch.policies[0];
  return t;
}

std::vector<std::pair<int, int>> connections(const Sketch& sketch, int gpus) {
  std::vector<std::pair<int, int>> result;
  for (int from = 0; from < gpus; from++) switch (sketch.conn) {
      case Sketch::Connections::kAll:
        for (int to = 0; to < gpus; to++) result.emplace_back(from, to);
        break;
      case Sketch::Connections::kSameGpu:
        result.emplace_back(from, from);
        break;
      case Sketch::Connections::kMap:
        if (const auto it = sketch.connections.find(from); it != sketch.connections.end())
          for (const int to : it->second) result.emplace_back(from, to);
        break;
    }
  return result;
}

int planes(const Sketch& sketch, int from, int to) {
  if (sketch.intranode != Sketch::Intranode::kSwitch) return 1;
  int count = 0;
  for (const auto& gpus : sketch.switches)
    if (std::find(gpus.begin(), gpus.end(), from) != gpus.end() &&
        std::find(gpus.begin(), gpus.end(), to) != gpus.end())
      count++;
  return count;
}

void add_link(LogicalTopology& t, LogicalLink link) {
  t.leaving[static_cast<size_t>(link.from)].push_back(static_cast<int32_t>(t.links.size()));
  t.links.push_back(std::move(link));
}

int32_t LogicalTopology::link(int from, int to) const {
  for (const int32_t l : leaving[static_cast<size_t>(from)])
    if (links[static_cast<size_t>(l)].to == to) return l;
  return -1;
}

void add_symmetries(const Sketch& sketch, LogicalTopology& t) {
  const int gpus = static_cast<int>(t.rank_at[0].size());
  for (size_t i = 0; i < sketch.symmetry.size(); i++) {
    const auto [offset, group] = sketch.symmetry[i];
    const std::string element =
        fmt::format("{}: symmetry_offsets[{}] ([{}, {}])", sketch.name, i, offset, group);
    if (t.ranks % group != 0)
      fail(ncclInvalidArgument, "{}: {} ranks are not groups of {}", element, t.ranks, group);
    std::vector<int> image(static_cast<size_t>(t.ranks));
    const auto rank = [&](int number) {
      return t.rank_at[static_cast<size_t>(number / gpus)][static_cast<size_t>(number % gpus)];
    };
    for (int r = 0; r < t.ranks; r++)
      image[static_cast<size_t>(rank(r))] = rank((r % group + offset) % group + r / group * group);
    if (const std::string why = asymmetry(t, image); !why.empty())
      fail(ncclInvalidArgument, "{} is no symmetry: {}", element, why);
    t.symmetries.push_back(std::move(image));
  }
}

}  // namespace weft
