// A communication sketch, as TACCL's users write it: a user's knowledge of a machine and wishes for
// its schedules. Plain data; logical_topology.h applies it to a machine.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

struct Sketch {
  // The preference among equally fast routes inside a host.
  enum class Intranode {
    kNone,
    kSwitch,  // GPUs meet at switches; `policies` says how many links of a switch to use
    kMinMax,  // the least load on the busiest link
    kMaxMin,  // the most load on the least busy link
  };
  enum class Policy { kFewLinks, kManyLinks };  // "uc-min", "uc-max"
  // Which GPUs may send to other hosts, and to which GPUs there. GPUs are numbered within their
  // host.
  enum class Connections {
    kMap,      // as in `connections`
    kAll,      // "fully-connected": every GPU to every GPU
    kSameGpu,  // "direct-map": GPU i to GPU i
  };

  std::string name;  // the file, for errors
  int hosts = 1;
  Intranode intranode = Intranode::kNone;
  std::vector<std::vector<int>> switches;  // the GPUs at each; the same list twice: two planes
  std::vector<Policy> policies;            // per switch

  Connections conn = Connections::kAll;
  std::map<int, std::vector<int>> connections;  // sender: receivers
  std::map<int, std::vector<int>> senders;      // sender: whose data it sends; empty: anyone's
  bool own_first = false;                       // a sender's own data goes before relayed data
  std::vector<std::pair<int, int>> symmetry;    // (offset, group): rank r like r + offset in
                                                // its group of ranks
  int chunks = 1;                               // per block
};

// Both throw Error(ncclInvalidArgument) with one line that names file, element and reason.
Sketch read_sketch(std::string_view json, const std::string& name);
Sketch load_sketch(const std::string& path);

}  // namespace weft
