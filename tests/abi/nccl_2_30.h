/* Prototypes of the functions that came with NCCL 2.29 and 2.30, as NCCL 2.30.7 has them. */
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

typedef struct {
  int opCnt, peer, sigIdx, ctx;
} WaitSignalDesc;

typedef struct ParamHandle* Param;

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, Properties* props);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, int stat, uint64_t* value);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** pointer);
ncclResult_t ncclPutSignal(const void* buffer, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int signal, int context,
                           unsigned flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t ncclWaitSignal(int count, WaitSignalDesc* signals, ncclComm_t comm,
                            cudaStream_t stream);

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

ncclResult_t ncclParamBind(Param* out, const char* key);
ncclResult_t ncclParamGetI8(Param handle, int8_t* out);
ncclResult_t ncclParamGetI16(Param handle, int16_t* out);
ncclResult_t ncclParamGetI32(Param handle, int32_t* out);
ncclResult_t ncclParamGetI64(Param handle, int64_t* out);
ncclResult_t ncclParamGetU8(Param handle, uint8_t* out);
ncclResult_t ncclParamGetU16(Param handle, uint16_t* out);
ncclResult_t ncclParamGetU32(Param handle, uint32_t* out);
ncclResult_t ncclParamGetU64(Param handle, uint64_t* out);
ncclResult_t ncclParamGetStr(Param handle, const char** out);
ncclResult_t ncclParamGet(Param handle, void* out, int room, int* length);
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* length);
ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* length);
void ncclParamDumpAll(void);
