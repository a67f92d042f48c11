// Prints sizes and offsets of nccl_device.h as "name offset size" lines. The expected output is
// that of NVIDIA's headers of 2.30.7. clang-format would break up the rows of macros.
// clang-format off
#include <nccl_device.h>

#include <cstddef>
#include <cstdio>

#define S(type) std::printf(#type " %zu\n", sizeof(type));
// NOLINTNEXTLINE(bugprone-macro-parentheses): neither a type nor a field can be in parentheses.
#define F(type, field) std::printf(#type "." #field " %zu %zu\n", offsetof(type, field), sizeof(type::field));

extern "C" unsigned requirements_of_c(void);

int main() {
  S(ncclDevComm) S(ncclWindow_vidmem) S(ncclDevCommRequirements) S(ncclDevResourceRequirements)
  S(ncclTeamRequirements) S(ncclCommProperties) S(ncclDevCommWindowTable) S(ncclLsaBarrierHandle) S(ncclLLA2AHandle)
  S(ncclGinBarrierHandle) S(ncclTeam) S(ncclResourceWindow_vidmem)
  F(ncclDevComm,magic) F(ncclDevComm,rank) F(ncclDevComm,nRanks_rcp32) F(ncclDevComm,lsaRank)
  F(ncclDevComm,lsaSize_rcp32) F(ncclDevComm,windowTable) F(ncclDevComm,resourceWindow)
  F(ncclDevComm,resourceWindow_inlined) F(ncclDevComm,hybridWorldGinBarrier) F(ncclDevComm,lsaMultimem)
  F(ncclDevComm,lsaBarrier) F(ncclDevComm,railGinBarrier) F(ncclDevComm,ginConnectionCount)
  F(ncclDevComm,ginNetDeviceTypes) F(ncclDevComm,ginHandles) F(ncclDevComm,ginSignalCount)
  F(ncclDevComm,ginSignalShadows) F(ncclDevComm,ginContextCount) F(ncclDevComm,ginContextsRailed)
  F(ncclDevComm,abortFlag) F(ncclDevComm,hybridLsaBarrier) F(ncclDevComm,hybridRailGinBarrier)
  F(ncclDevComm,worldGinBarrier)
  F(ncclWindow_vidmem,lsaFlatBase) F(ncclWindow_vidmem,lsaRank) F(ncclWindow_vidmem,worldRank)
  F(ncclWindow_vidmem,stride4G) F(ncclWindow_vidmem,mcOffset4K) F(ncclWindow_vidmem,ginOffset4K)
  F(ncclWindow_vidmem,ginWins) F(ncclWindow_vidmem,ginMultiSegmentWins) F(ncclWindow_vidmem,numSegments)
  F(ncclResourceWindow_vidmem,lsaFlatBase) F(ncclResourceWindow_vidmem,stride4G)
  F(ncclDevCommRequirements,magic) F(ncclDevCommRequirements,resourceRequirementsList)
  F(ncclDevCommRequirements,teamRequirementsList) F(ncclDevCommRequirements,lsaMultimem)
  F(ncclDevCommRequirements,barrierCount) F(ncclDevCommRequirements,lsaBarrierCount)
  F(ncclDevCommRequirements,railGinBarrierCount) F(ncclDevCommRequirements,lsaLLA2ASlotCount)
  F(ncclDevCommRequirements,ginForceEnable) F(ncclDevCommRequirements,ginContextCount)
  F(ncclDevCommRequirements,ginCounterCount) F(ncclDevCommRequirements,ginConnectionType)
  F(ncclDevCommRequirements,ginExclusiveContexts) F(ncclDevCommRequirements,ginQueueDepth)
  F(ncclDevCommRequirements,ginTrafficClass) F(ncclDevCommRequirements,worldGinBarrierCount)
  F(ncclDevCommRequirements,ginStrongSignalsRequired) F(ncclDevCommRequirements,ginVaSignalsRequired)
  F(ncclDevResourceRequirements,bufferSize) F(ncclDevResourceRequirements,outBufferHandle)
  F(ncclDevResourceRequirements,ginSignalCount) F(ncclDevResourceRequirements,outGinCounterStart)
  F(ncclTeamRequirements,team) F(ncclTeamRequirements,multimem) F(ncclTeamRequirements,outMultimemHandle)
  F(ncclCommProperties,rank) F(ncclCommProperties,deviceApiSupport) F(ncclCommProperties,multimemSupport)
  F(ncclCommProperties,ginType) F(ncclCommProperties,nLsaTeams) F(ncclCommProperties,hostRmaSupport)
  F(ncclCommProperties,railedGinType)
  return requirements_of_c() == 23007 ? 0 : 1;
}
