// TACCL's topology files: the cost of a chunk on the links of its machines. Times are in the file's
// own unit, per chunk of the size that the file is for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct TacclTopology {
  std::string name;  // the file, for errors
  int gpus = 0;      // per host
  int nics = 1;      // per host
  double alpha = 0;
  // Per kind of link inside a host, the fastest first. One entry for a machine whose GPUs share a
  // switch, two for an NDv2 (two NVLinks, one NVLink).
  std::vector<double> betas;
  double remote_alpha = 0, remote_beta = 0;
  // Custom machines give the cost of a link per [to][from]; 0: no link. Empty otherwise.
  std::vector<std::vector<double>> custom_betas;

  // Beta of a link inside a host, 0: no link.
  double beta(int from, int to) const;
};

// Both throw Error(ncclInvalidArgument) with one line that names file, element and reason.
TacclTopology read_taccl_topology(std::string_view json, const std::string& name);
TacclTopology load_taccl_topology(const std::string& path);

}  // namespace weft
