// See selection.h.
#include "src/planner/selection.h"

#include <algorithm>
#include <array>

#include "algorithms/generators/hierarchical.h"
#include "algorithms/generators/host_map.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr size_t kSmall = 16u << 10;
constexpr size_t kLarge = 64u << 10;
// Between hosts, plans with few rounds win up to these sizes, and plans with few bytes beyond them.
// Up to kStraightGather, an all_gather that sends straight to every peer beats both.
constexpr size_t kFewRoundsReduce = 128u << 10, kFewRoundsGather = 256u << 10,
                 kStraightGather = 1u << 20;
constexpr size_t kHostsRooted = 512u << 10;
// Up to this many ranks, a root sends large messages itself, to one rank after the other.
constexpr int kFewReceivers = 4;
// From this size on, ranks that share a GPU sweep through its memory together. Ranks of different
// processes have page tables of their own and are faster apart.
constexpr size_t kSweeps = 128u << 20;

const Generator& first_supported(const Collective& c,
                                 std::initializer_list<const Generator*> preferred) {
  for (const Generator* generator : preferred)
    if (generator->supports(c)) return *generator;
  fail(ncclInternalError, "no generator makes {} for {} ranks", name(c.kind), c.nranks);
}

// With one rank per host, sending straight to every peer moves as many bytes as a ring, in fewer
// rounds. From these sizes on, and for these numbers of ranks, that outweighs the cost of more
// connections. On loopback a ring was 10 to 16% slower in an all_gather, 8 to 20% in an all_reduce.
// A star for broadcast and reduce is also faster on loopback. On a real network the root's NIC
// would carry everything.
bool goes_straight(const Collective& c, size_t bytes, const Placement& placement) {
  if (!placement.own_hosts) return false;
  switch (c.kind) {
    case CollectiveKind::kAllReduce:  // two ranks talk only to each other with any plan
      return c.nranks > 2 && c.nranks <= 4 && bytes >= (1u << 20);
    case CollectiveKind::kReduceScatter:
      return c.nranks > 2 && c.nranks <= 8 && bytes >= (512u << 10);
    default:
      return c.nranks <= 4 && bytes >= (512u << 10);
  }
}

// Whether there are no more than kMostDirectHosts. Ranks of a host are neighbours, mostly.
bool are_few(const std::vector<int>& hosts) {
  std::array<int, kMostDirectHosts> seen{};
  auto end = seen.begin();
  for (size_t r = 0; r < hosts.size(); r++) {
    if ((r > 0 && hosts[r] == hosts[r - 1]) || std::find(seen.begin(), end, hosts[r]) != end)
      continue;
    if (end == seen.end()) return false;
    *end++ = hosts[r];
  }
  return true;
}

// Few bytes between hosts outweigh more rounds beyond these sizes, measured on loopback with two
// hosts of four processes. Between GPUs they always do if the hosts form no ring: a round inside a
// host takes 2 us, and a rank's proxy several for every message to another host. On an H200 as two
// hosts of four ranks, an all_gather took 73 us by hosts with 128 KiB, and 125 us in one round with
// 8 KiB. The kernels for FIFOs in host memory have no scratch memory, which kHierarchical needs.
bool goes_by_hosts(const Collective& c, size_t bytes, const Placement& placement) {
  if (placement.hosts.empty() || placement.via_host || !kHierarchical.supports(c)) return false;
  const bool exchanges = c.kind == CollectiveKind::kAllToAll;
  if (placement.lanes && !c.rooted() && (exchanges || are_few(placement.hosts))) return true;
  return !exchanges && bytes > (c.rooted() ? kHostsRooted : kLarge);
}

// The most bytes that a rank sends or receives in a single round. It exchanges the whole array, or
// a block of it, with every peer.
size_t one_round_bytes(const Collective& c, size_t bytes) {
  const auto n = static_cast<size_t>(c.nranks);
  const bool whole = c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kReduce ||
                     c.kind == CollectiveKind::kBroadcast;
  return (whole ? bytes : bytes / n) * (n - 1);
}

}  // namespace

std::vector<int> hosts_of_hierarchy(std::vector<int> hosts) {
  const HostMap map(hosts);
  const Collective sum{CollectiveKind::kAllReduce, static_cast<int>(hosts.size()), 0};
  if (map.hosts() < 2 || map.most < 2 || !supports_hierarchical(sum, hosts)) hosts.clear();
  return hosts;
}

const Generator* forced_generator(CollectiveKind kind, const std::string& forced) {
  size_t begin = 0;
  while (begin < forced.size()) {
    size_t end = forced.find(',', begin);
    if (end == std::string::npos) end = forced.size();
    const std::string entry = forced.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos)
      fail(ncclInvalidUsage, "WEFT_PLAN: '{}' is not collective=generator", entry);
    const auto named = parse_collective(entry.substr(0, equals));
    if (!named) fail(ncclInvalidUsage, "WEFT_PLAN: '{}' is no collective", entry.substr(0, equals));
    const Generator* generator = find_generator(entry.substr(equals + 1));
    if (generator == nullptr)
      fail(ncclInvalidUsage, "WEFT_PLAN: there is no generator '{}'", entry.substr(equals + 1));
    if (*named == kind) return generator;
  }
  return nullptr;
}

const Generator& choose_generator(const Collective& c, size_t bytes, const Placement& placement,
                                  const Generator* forced) {
  if (forced != nullptr) {
    if (!forced->supports(c) || (forced->peer_memory && !placement.peer_memory))
      fail(ncclInvalidUsage, "WEFT_PLAN: generator {} does not make {} for these {} ranks",
           forced->name, name(c.kind), c.nranks);
    return *forced;
  }
  if (placement.peer_memory) return kPeerMemory;
  if (goes_by_hosts(c, bytes, placement)) return kHierarchical;
  const bool few = c.nranks <= 16;
  const bool far = placement.via_host || (placement.lanes && !placement.one_host);
  if (far && few && c.kind != CollectiveKind::kAllReduce && kOneRound.supports(c) &&
      one_round_bytes(c, bytes) <= kLarge)
    return kOneRound;
  if (placement.multi_connection && bytes > kLarge && kMultiConnection.supports(c))
    return kMultiConnection;
  // Two ranks send the same bytes in one phase as in two.
  if (placement.multi_connection && c.kind == CollectiveKind::kAllReduce && c.nranks == 2)
    return kOneShot;
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      if (bytes <= kSmall) return first_supported(c, {few ? &kOneShot : &kRecursive});
      if (placement.one_host) return first_supported(c, {&kDirect, &kRing});
      if (bytes <= kFewRoundsReduce) return first_supported(c, {&kRecursive, &kRing});
      return goes_straight(c, bytes, placement) ? first_supported(c, {&kDirect, &kRing}) : kRing;
    case CollectiveKind::kAllGather:
      if (bytes <= kSmall && !few) return first_supported(c, {&kRecursive, &kDirect});
      if (placement.one_host) return kDirect;
      if (bytes <= kSmall) return first_supported(c, {&kRecursive, &kDirect});
      if (goes_straight(c, bytes, placement)) return kOneRound;
      // Every plan has one round here. ring copies the rank's own block after the message is sent.
      if (c.nranks == 2) return kRing;
      if (bytes <= kFewRoundsGather) return first_supported(c, {&kRecursive, &kRing});
      return bytes <= kStraightGather && few ? kDirect : kRing;
    case CollectiveKind::kReduceScatter:
      if (bytes <= kSmall && !few) return first_supported(c, {&kRecursive, &kRing});
      return placement.one_host || goes_straight(c, bytes, placement)
                 ? first_supported(c, {&kDirect, &kRing})
                 : kRing;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      // A chain keeps all ranks busy. If data is lent, the root copies nothing: a star is faster.
      if (bytes >= kLarge && c.nranks > 2 && !placement.one_process) return kRing;
      return first_supported(c, {few || placement.one_process ? &kDirect : &kTree, &kTree});
    case CollectiveKind::kAllToAll:
      return placement.one_host || few ? kDirect : kPairwise;
    case CollectiveKind::kSendRecv:
      return kSendRecv;
    default:
      return kDirect;
  }
}

GpuChoice choose_for_gpu(const Collective& c, size_t bytes, size_t packet_bytes,
                         const Generator* forced, bool together) {
  // A single rank needs no CPU nodes.
  if (forced != nullptr && forced->cpu_nodes > 0 && c.nranks == 1) forced = nullptr;
  if (forced != nullptr) {
    if (forced->cpu_nodes > 0)
      fail(ncclInvalidUsage,
           "WEFT_PLAN: {} needs CPU nodes, and there are none: ranks must be able to share memory",
           forced->name);
    if (!forced->supports(c))
      fail(ncclInvalidUsage, "WEFT_PLAN: generator {} does not make {} for these {} ranks",
           forced->name, name(c.kind), c.nranks);
    return {forced, !forced->peer_memory};
  }
  // `most`: packets are faster up to this size. It is larger if only the root moves these bytes,
  // and largest if the root only receives. It is also larger between processes, where many buffers
  // would go through scratch memory, which is slower than peer_memory.
  const size_t moved = one_round_bytes(c, bytes);
  const bool reduces = c.kind == CollectiveKind::kReduce,
             broadcasts = c.kind == CollectiveKind::kBroadcast, several = c.nranks > 2;
  size_t most = packet_bytes;
  if (reduces && (several || !together)) {
    most = 2 * packet_bytes;
  } else if (together) {
    most = packet_bytes / 4 * (broadcasts && several ? 3 : 2);
  }
  if (c.nranks > 1 && moved <= most)
    return {c.kind == CollectiveKind::kAllReduce ? &kOneShot : &kOneRound, true};
  // With many ranks, receivers of a broadcast pass the data on.
  if (broadcasts && c.nranks > kFewReceivers && !together && moved <= 2 * packet_bytes)
    return {&kTree, true};
  return {together && bytes >= kSweeps && kSweep.supports(c) ? &kSweep : &kPeerMemory, false};
}

}  // namespace weft
