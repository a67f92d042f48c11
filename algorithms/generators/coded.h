// Schedules whose messages between hosts are coded: an all_gather (ZeRO++'s qwZ), a hierarchical
// reduce_scatter with a sum on every host in between (qgZ), and an all_reduce of both.
#pragma once

#include <span>

#include "src/schedule/schedule.h"

namespace weft {

// Why there is no such schedule; empty: there is one.
std::string why_not_coded(const Collective& collective, std::span<const int> hosts,
                          const CodecSpec& spec);
// `hosts`: the host of every rank, of 2 to 63 hosts. Every value is encoded once in each phase. All
// ranks get the same bits, except that the owner of an all_gather's block keeps it exact. Works in
// place and out of place. `near`: a number per rank; messages between ranks with the same number
// are not coded, whatever their hosts. Empty: all messages between hosts are. For lossy codecs
// only.
Schedule make_coded(const Collective& collective, std::span<const int> hosts, const CodecSpec& spec,
                    std::span<const int> near = {});

}  // namespace weft
