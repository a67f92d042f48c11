// The machine as a sketch lets it be used: links between ranks with their costs, what they share,
// and who may relay. The first stage of TACCL's pipeline; everything after it works on this. Plain
// data and pure functions.
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
  // What a message keeps the link busy for besides its chunks: chunks sent together save it. In
  // TACCL's cost model all of alpha.
  double busy_us = 0;
  std::vector<int32_t> resources;  // what it keeps busy, in order from `from` to `to`
  std::vector<int32_t> path;       // links of the machine; empty without one
};

// Something that serves one chunk at a time: a link, a switch's port, a NIC.
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
  // Per local GPU, which local GPUs may send its data to other hosts; empty: all that are
  // connected.
  std::vector<std::vector<int>> senders;
  bool own_first = false;
  std::vector<std::vector<int>> symmetries;  // per entry of the sketch, rank -> its like
  Sketch::Intranode intranode = Sketch::Intranode::kNone;
  Sketch::Policy policy = Sketch::Policy::kFewLinks;

  // The link between two ranks, or -1.
  int32_t link(int from, int to) const;
};

// Machines as TACCL describes them, in its units and with its rules: beta of links between hosts is
// multiplied by (senders * receivers of each) / NICs, a switch's GPUs share in-ports and out-ports,
// with more than two hosts the NIC of every relay is shared; alpha keeps links busy.
LogicalTopology logical_topology(const TacclTopology& topology, const Sketch& sketch);

// Ranks are the GPUs of the machine; the sketch's GPU i is the i-th one of each host. What links
// share is what the machine says, so nothing is split beforehand. A link inside a host that is
// slower than going over one relay is left out (where the sketch does not name switches).
// `message_us` is how long a message keeps a link between hosts busy besides its bytes.
LogicalTopology logical_topology(const Machine& machine, const Sketch& sketch, double chunk_bytes,
                                 double message_us = 0);

// The machine with every link turned round: reducing on a machine is gathering on this one.
Machine turned_round(const Machine& machine);

// Both functions above throw Error(ncclInvalidArgument) in one line where sketch and machine do not
// fit: other numbers of hosts, GPUs or relays that do not exist, a symmetry that is none.

}  // namespace weft
