// The colours of links in drawings of machines.
#pragma once

#include "src/topology/graph/machine.h"

namespace weft {

inline const char* colour_of(LinkType type) {
  switch (type) {
    case LinkType::kNvlink:
      return "#3f8f00";
    case LinkType::kXgmi:
      return "#b02a2a";
    case LinkType::kPcie:
      return "#555555";
    case LinkType::kSocket:
      return "#996600";
    case LinkType::kNetwork:
      return "#1f5fbf";
    case LinkType::kC2c:
      return "#7a3fb0";
    case LinkType::kOther:
      return "#000000";
  }
  return "#000000";
}

}  // namespace weft
