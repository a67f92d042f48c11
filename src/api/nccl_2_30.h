// Types of NCCL's device API, which nccl.h does not have. Layouts are those of NCCL 2.30.7.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"

extern "C" {

struct ncclTeam {
  int nRanks, rank, stride;
};
using ncclTeam_t = ncclTeam;

// Passed by value.
struct ncclMultimemHandle {
  void* mcBasePtr;
};
using ncclMultimemHandle_t = ncclMultimemHandle;

using ncclDevResourceHandle_t = uint32_t;

enum ncclGinType_t : int { NCCL_GIN_TYPE_NONE = 0 };

// Grows at the end only, as ncclConfig_t does. NCCL 2.29.2 ends after ginType.
struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
};
using ncclCommProperties_t = ncclCommProperties;
static_assert(offsetof(ncclCommProperties, ginType) == 36 && sizeof(ncclCommProperties) == 56);

}  // extern "C"
