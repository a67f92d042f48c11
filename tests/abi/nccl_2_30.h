/* Prototypes of the functions of NCCL 2.30.7 that are not in nccl.h and came after 2.28. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "nccl.h"

typedef struct {
  int nRanks, rank, stride;
} Team;

typedef struct {
  void* base;
} MultimemHandle;

typedef struct {
  size_t size;
  unsigned magic, version;
  int rank, nRanks, cudaDev, nvmlDev;
  bool deviceApiSupport, multimemSupport;
  int ginType; /* NCCL 2.29.2 ends here */
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
} Properties;

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, Properties* props);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int rank, void** pointer);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** pointer);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** pointer);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, MultimemHandle handle,
                                          void** pointer);
ncclResult_t ncclGinInboxA2ACreateRequirement(Team peers, int blocks, int log2_size, void* handle,
                                              void* requirements);
ncclResult_t ncclGinOutboxCreateRequirement(int blocks, int log2_size, void* handle,
                                            void* requirements);
size_t ncclGetResourceBufferOffset(uint32_t handle);

Team ncclTeamInnerFactor(Team parent, int size);
Team ncclTeamOuterFactor(Team parent, int size);
int ncclTeamRankInDifference(Team parent, Team subset, int index);
bool ncclTeamRankIsMember(Team a, Team b, int rank);
int ncclTeamRankToTeam(Team a, Team b, int rank);
