// The part of a machine that a sketch allows: links between ranks with their costs, shared
// resources, and permitted relays. The first stage of TACCL's pipeline; all later stages work on
// this. Plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/synth/taccl/sketch.h"
#include "algorithms/synth/taccl/taccl_topology.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct LogicalLink {
  int32_t from = 0, to = 0;  // ranks
  bool remote = false;       // between hosts
  double alpha_us = 0;
  double beta_us = 0;  // per chunk
  // How long a message keeps the link busy besides its chunks. Chunks sent together save it. In
  // TACCL's cost model it is all of alpha.
  double busy_us = 0;
  std::vector<int32_t> resources;  // the resources it keeps busy, in order from `from` to `to`
  std::vector<int32_t> path;       // links of the machine; empty for TACCL's topologies
};

// A resource that serves one chunk at a time: a link, a switch's port, a NIC.
struct Resource {
  double beta_us = 0;  // per chunk
};

struct LogicalTopology {
  std::string name;  // of the sketch, for messages
  int ranks = 0, hosts = 1;
  std::vector<int> host_of, local_of;         // per rank
  std::vector<std::vector<int>> rank_at;      // [host][local]
  std::vector<LogicalLink> links;             // at most one from a rank to another
  std::vector<std::vector<int32_t>> leaving;  // per rank, links
  std::vector<Resource> resources;
  // Per local GPU, the local GPUs that may send its data to other hosts; empty: all connected ones.
  std::vector<std::vector<int>> senders;
  bool own_first = false;
  std::vector<std::vector<int>> symmetries;  // per entry of the sketch, rank -> its image
  Sketch::Intranode intranode = Sketch::Intranode::kNone;
  Sketch::Policy policy = Sketch::Policy::kFewLinks;

  // The link between two ranks, or -1.
  int32_t link(int from, int to) const;
};

// For machines as TACCL describes them, in its units and with its rules. Beta of links between
// hosts is multiplied by (senders * receivers of each) / NICs. A switch's GPUs share in-ports and
// out-ports. With more than two hosts the NIC of every relay is shared. Alpha keeps links busy.
LogicalTopology logical_topology(const TacclTopology& topology, const Sketch& sketch);

// Ranks are the GPUs of the machine; the sketch's GPU i is the i-th GPU of each host. The machine
// says what links share, so nothing is split beforehand. A link inside a host that is slower than a
// path over one relay is left out, unless the sketch names switches. `message_us` is how long a
// message keeps a link between hosts busy besides its bytes.
LogicalTopology logical_topology(const Machine& machine, const Sketch& sketch, double chunk_bytes,
                                 double message_us = 0);

// The machine with every link reversed: a reduction on a machine is a gather on this one.
Machine turned_round(const Machine& machine);

// Both functions above throw Error(ncclInvalidArgument) in one line if sketch and machine do not
// match: another number of hosts, missing GPUs or relays, a wrong symmetry.

}  // namespace weft
