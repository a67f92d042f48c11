// TACCL's topology files: what a chunk costs on the links of its machines. Times are in whatever
// unit the file uses, per chunk of the size it was written for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct TacclTopology {
  std::string name;  // the file, for messages
  int gpus = 0;      // per host
  int nics = 1;      // per host
  double alpha = 0;
  // Per kind of link inside a host, the fastest first: one for a machine whose GPUs all meet at a
  // switch, two for an NDv2 (two NVLinks, one).
  std::vector<double> betas;
  double remote_alpha = 0, remote_beta = 0;
  // Custom machines say per [to][from] what a link costs; 0: no link. Empty otherwise.
  std::vector<std::vector<double>> custom_betas;

  // Beta of the link inside a host, 0: none.
  double beta(int from, int to) const;
};

// Both throw Error(ncclInvalidArgument) with one line that names file, element and reason.
TacclTopology read_taccl_topology(std::string_view json, const std::string& name);
TacclTopology load_taccl_topology(const std::string& path);

}  // namespace weft
