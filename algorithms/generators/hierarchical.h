// Schedules for ranks on several hosts. Data crosses between hosts as few times as the collective
// allows, and every rank of a host carries its part of it. Inside a host all ranks talk to all.
#pragma once

#include <span>

#include "src/schedule/schedule.h"

namespace weft {

// Owners of up to this many hosts talk directly, in two network hops. Owners of more hosts form
// rings, because every connection costs memory and time. Alltoall has no rings.
inline constexpr int kMostDirectHosts = 8;

// `hosts`: the host of every rank. Ranks of a host need not be neighbours, and hosts may differ in
// size. Works in place and out of place. At most two channels between two ranks, at most five
// lanes.
Schedule make_hierarchical(const Collective& collective, std::span<const int> hosts);
// The same for lossy links: owners of a part always talk directly, so that a value is encoded once
// in each direction. Up to 63 hosts; not for broadcast, reduce and alltoall. `swaps`: two hosts may
// swap the sums of an all_reduce.
Schedule make_hierarchical_direct(const Collective& collective, std::span<const int> hosts,
                                  bool swaps);
// Hosts of up to 63 ranks; all_reduce, all_gather, reduce_scatter, broadcast, reduce and alltoall.
bool supports_hierarchical(const Collective& collective, std::span<const int> hosts);

}  // namespace weft
