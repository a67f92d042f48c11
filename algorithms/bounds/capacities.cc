// See capacities.h.
#include "algorithms/bounds/capacities.h"

#include <cmath>
#include <numeric>

#include "src/base/error.h"

namespace weft {

Capacities capacities(const Machine& machine) {
  Capacities result;
  int64_t unit = 0;
  for (const Link& link : machine.links) {
    if (!std::isfinite(link.gbps) || link.gbps < 0 || link.gbps > 1e6)
      fail(ncclInvalidArgument, "{}: link {} -> {} has {} GB/s", machine.name,
           machine.nodes[static_cast<size_t>(link.from)].id,
           machine.nodes[static_cast<size_t>(link.to)].id, link.gbps);
    result.units.push_back(std::llround(link.gbps * 1e9));
    unit = std::gcd(unit, result.units.back());
  }
  if (unit == 0) unit = 1;
  for (int64_t& units : result.units) units /= unit;
  result.unit_gbps = static_cast<double>(unit) / 1e9;
  return result;
}

Machine reversed(Machine machine) {
  for (Link& link : machine.links) std::swap(link.from, link.to);
  return machine;
}

}  // namespace weft
