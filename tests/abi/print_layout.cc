// Prints every value, size, offset and function type of nccl.h as "name value" lines. It is
// compiled with our header and with the CUDA toolkit's, and layout_*.txt have what it prints with
// NVIDIA's headers of those versions. layout_test.sh compares.
// clang-format would break up the rows of macros.
// clang-format off
#include <nccl.h>

#include <cstddef>
#include <cstdio>
#include <typeinfo>

#define VALUE(name) std::printf(#name " %lld\n", static_cast<long long>(name));
#define SIZE(type) std::printf("sizeof(" #type ") %zu\n", sizeof(type));
// NOLINTNEXTLINE(bugprone-macro-parentheses): neither a type nor a field can be in parentheses.
#define FIELD(type, field) \
  std::printf(#type "." #field " at %zu size %zu\n", offsetof(type, field), sizeof(type::field));
#define FUNCTION(f) std::printf(#f " %s\n", typeid(decltype(&f)).name());

static void macros() {
  VALUE(NCCL_MAJOR)
  VALUE(NCCL_MINOR) VALUE(NCCL_PATCH) VALUE(NCCL_VERSION_CODE) VALUE(NCCL_UNIQUE_ID_BYTES)
      VALUE(NCCL_CONFIG_UNDEF_INT) VALUE(NCCL_SPLIT_NOCOLOR) VALUE(NCCL_WIN_DEFAULT)
          VALUE(NCCL_WIN_COLL_SYMMETRIC) VALUE(NCCL_WIN_REQUIRED_ALIGNMENT)
              VALUE(NCCL_CTA_POLICY_DEFAULT) VALUE(NCCL_CTA_POLICY_EFFICIENCY)
                  VALUE(NCCL_CTA_POLICY_ZERO) VALUE(NCCL_SHRINK_DEFAULT) VALUE(NCCL_SHRINK_ABORT)
                      VALUE(NCCL_REVOKE_DEFAULT) std::printf("NCCL_SUFFIX \"%s\"\n", NCCL_SUFFIX);
  std::printf("NCCL_COMM_NULL %d\n", NCCL_COMM_NULL == nullptr);
  std::printf("NCCL_CONFIG_UNDEF_PTR %d\n", NCCL_CONFIG_UNDEF_PTR == nullptr);
  std::printf("NCCL_UNDEF_FLOAT %a size %zu\n", static_cast<double>(NCCL_UNDEF_FLOAT),
              sizeof(NCCL_UNDEF_FLOAT));
  VALUE(NCCL_VERSION(2, 8, 4)) VALUE(NCCL_VERSION(2, 9, 0)) VALUE(NCCL_VERSION(2, 28, 9))
#if NCCL_VERSION_CODE >= 22900
  VALUE(NCCL_API_MAGIC) VALUE(NCCL_WIN_STRICT_ORDERING) VALUE(NCCL_SUSPEND_MEM)
#endif
}

static void enumerators() {
  VALUE(ncclSuccess)
  VALUE(ncclUnhandledCudaError) VALUE(ncclSystemError) VALUE(ncclInternalError)
      VALUE(ncclInvalidArgument) VALUE(ncclInvalidUsage) VALUE(ncclRemoteError)
          VALUE(ncclInProgress) VALUE(ncclNumResults) VALUE(ncclNumOps_dummy) VALUE(ncclSum)
              VALUE(ncclProd) VALUE(ncclMax) VALUE(ncclMin) VALUE(ncclAvg) VALUE(ncclNumOps)
                  VALUE(ncclMaxRedOp) VALUE(ncclInt8) VALUE(ncclChar) VALUE(ncclUint8)
                      VALUE(ncclInt32) VALUE(ncclInt) VALUE(ncclUint32) VALUE(ncclInt64)
                          VALUE(ncclUint64) VALUE(ncclFloat16) VALUE(ncclHalf) VALUE(ncclFloat32)
                              VALUE(ncclFloat) VALUE(ncclFloat64) VALUE(ncclDouble)
                                  VALUE(ncclBfloat16) VALUE(ncclFloat8e4m3) VALUE(ncclFloat8e5m2)
                                      VALUE(ncclNumTypes) VALUE(ncclScalarDevice)
                                          VALUE(ncclScalarHostImmediate)
#if NCCL_VERSION_CODE >= 22900
  VALUE(ncclStatGpuMemSuspend) VALUE(ncclStatGpuMemSuspended) VALUE(ncclStatGpuMemPersist)
  VALUE(ncclStatGpuMemTotal)
#endif
#if NCCL_VERSION_CODE >= 23000
  VALUE(ncclTimeout)
#endif
}

static void structures() {
  SIZE(ncclUniqueId)
  FIELD(ncclUniqueId, internal) SIZE(ncclComm_t) SIZE(ncclWindow_t) SIZE(ncclResult_t)
      SIZE(ncclDataType_t) SIZE(ncclRedOp_t) SIZE(ncclRedOp_dummy_t) SIZE(ncclScalarResidence_t)
          SIZE(ncclConfig_t) FIELD(ncclConfig_t, size) FIELD(ncclConfig_t, magic)
              FIELD(ncclConfig_t, version) FIELD(ncclConfig_t, blocking)
                  FIELD(ncclConfig_t, cgaClusterSize) FIELD(ncclConfig_t, minCTAs)
                      FIELD(ncclConfig_t, maxCTAs) FIELD(ncclConfig_t, netName)
                          FIELD(ncclConfig_t, splitShare) FIELD(ncclConfig_t, trafficClass)
                              FIELD(ncclConfig_t, commName) FIELD(ncclConfig_t, collnetEnable)
                                  FIELD(ncclConfig_t, CTAPolicy) FIELD(ncclConfig_t, shrinkShare)
                                      FIELD(ncclConfig_t, nvlsCTAs)
                                          FIELD(ncclConfig_t, nChannelsPerNetPeer)
                                              FIELD(ncclConfig_t, nvlinkCentricSched)
                                                  SIZE(ncclSimInfo_t) FIELD(ncclSimInfo_t, size)
                                                      FIELD(ncclSimInfo_t, magic)
                                                          FIELD(ncclSimInfo_t, version)
                                                              FIELD(ncclSimInfo_t, estimatedTime)
#if NCCL_VERSION_CODE >= 22900
  FIELD(ncclConfig_t, graphUsageMode) FIELD(ncclConfig_t, numRmaCtx) SIZE(ncclCommMemStat_t)
  SIZE(ncclWaitSignalDesc_t) FIELD(ncclWaitSignalDesc_t, opCnt) FIELD(ncclWaitSignalDesc_t, peer)
  FIELD(ncclWaitSignalDesc_t, sigIdx) FIELD(ncclWaitSignalDesc_t, ctx)
#endif
#if NCCL_VERSION_CODE >= 23000
  FIELD(ncclConfig_t, maxP2pPeers) FIELD(ncclConfig_t, graphStreamOrdering) SIZE(ncclParamHandle_t)
#endif
}

static void initializers() {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  VALUE(config.size)
  VALUE(config.magic) VALUE(config.version) VALUE(config.blocking) VALUE(config.cgaClusterSize)
      VALUE(config.minCTAs) VALUE(config.maxCTAs) VALUE(config.splitShare)
          VALUE(config.trafficClass) VALUE(config.collnetEnable) VALUE(config.CTAPolicy)
              VALUE(config.shrinkShare) VALUE(config.nvlsCTAs) VALUE(config.nChannelsPerNetPeer)
                  VALUE(config.nvlinkCentricSched)
                      std::printf("config.netName %d config.commName %d\n",
                                  config.netName == nullptr, config.commName == nullptr);
#if NCCL_VERSION_CODE >= 22900
  VALUE(config.graphUsageMode) VALUE(config.numRmaCtx)
#endif
#if NCCL_VERSION_CODE >= 23000
  VALUE(config.maxP2pPeers) VALUE(config.graphStreamOrdering)
#endif
  const ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
  VALUE(sim.size)
  VALUE(sim.magic) VALUE(sim.version)
      std::printf("sim.estimatedTime %a\n", static_cast<double>(sim.estimatedTime));
}

static void functions() {
  FUNCTION(ncclAllGather)
  FUNCTION(ncclAllReduce) FUNCTION(ncclAlltoAll) FUNCTION(ncclBcast) FUNCTION(ncclBroadcast) FUNCTION(
      ncclCommAbort) FUNCTION(ncclCommCount) FUNCTION(ncclCommCuDevice) FUNCTION(ncclCommDeregister)
      FUNCTION(ncclCommDestroy) FUNCTION(ncclCommFinalize) FUNCTION(ncclCommGetAsyncError) FUNCTION(
          ncclCommInitAll) FUNCTION(ncclCommInitRank) FUNCTION(ncclCommInitRankConfig)
          FUNCTION(ncclCommInitRankScalable) FUNCTION(ncclCommRegister) FUNCTION(
              ncclCommRevoke) FUNCTION(ncclCommShrink) FUNCTION(ncclCommSplit) FUNCTION(ncclCommUserRank)
              FUNCTION(ncclCommWindowDeregister) FUNCTION(ncclCommWindowRegister) FUNCTION(
                  ncclGather) FUNCTION(ncclGetErrorString) FUNCTION(ncclGetLastError)
                  FUNCTION(ncclGetUniqueId) FUNCTION(ncclGetVersion) FUNCTION(ncclGroupEnd) FUNCTION(
                      ncclGroupSimulateEnd) FUNCTION(ncclGroupStart) FUNCTION(ncclMemAlloc)
                      FUNCTION(ncclMemFree) FUNCTION(ncclRecv) FUNCTION(ncclRedOpCreatePreMulSum) FUNCTION(
                          ncclRedOpDestroy) FUNCTION(ncclReduce) FUNCTION(ncclReduceScatter)
                          FUNCTION(ncclResetDebugInit) FUNCTION(ncclScatter) FUNCTION(ncclSend) FUNCTION(
                              pncclAllGather) FUNCTION(pncclAllReduce) FUNCTION(pncclAlltoAll)
                              FUNCTION(pncclBcast) FUNCTION(pncclBroadcast) FUNCTION(
                                  pncclCommAbort) FUNCTION(pncclCommCount) FUNCTION(pncclCommCuDevice)
                                  FUNCTION(pncclCommDeregister) FUNCTION(pncclCommDestroy) FUNCTION(
                                      pncclCommFinalize) FUNCTION(pncclCommGetAsyncError)
                                      FUNCTION(pncclCommInitAll) FUNCTION(pncclCommInitRank) FUNCTION(
                                          pncclCommInitRankConfig) FUNCTION(pncclCommInitRankScalable)
                                          FUNCTION(pncclCommRegister) FUNCTION(
                                              pncclCommRevoke) FUNCTION(pncclCommShrink)
                                              FUNCTION(pncclCommSplit) FUNCTION(
                                                  pncclCommUserRank) FUNCTION(pncclCommWindowDeregister)
                                                  FUNCTION(pncclCommWindowRegister) FUNCTION(
                                                      pncclGather) FUNCTION(pncclGetErrorString)
                                                      FUNCTION(pncclGetLastError) FUNCTION(
                                                          pncclGetUniqueId) FUNCTION(pncclGetVersion)
                                                          FUNCTION(pncclGroupEnd) FUNCTION(
                                                              pncclGroupSimulateEnd)
                                                              FUNCTION(pncclGroupStart) FUNCTION(
                                                                  pncclMemAlloc) FUNCTION(pncclMemFree)
                                                                  FUNCTION(pncclRecv) FUNCTION(
                                                                      pncclRedOpCreatePreMulSum)
                                                                      FUNCTION(pncclRedOpDestroy)
                                                                          FUNCTION(pncclReduce) FUNCTION(
                                                                              pncclReduceScatter)
                                                                              FUNCTION(
                                                                                  pncclResetDebugInit)
                                                                                  FUNCTION(
                                                                                      pncclScatter)
                                                                                      FUNCTION(
                                                                                          pncclSend)
#if NCCL_VERSION_CODE >= 22900
  FUNCTION(ncclCommGetUniqueId) FUNCTION(pncclCommGetUniqueId)
  FUNCTION(ncclCommGrow) FUNCTION(pncclCommGrow)
  FUNCTION(ncclCommSuspend) FUNCTION(pncclCommSuspend)
  FUNCTION(ncclCommResume) FUNCTION(pncclCommResume)
  FUNCTION(ncclCommMemStats) FUNCTION(pncclCommMemStats)
  FUNCTION(ncclWinGetUserPtr) FUNCTION(pncclWinGetUserPtr)
  FUNCTION(ncclPutSignal) FUNCTION(pncclPutSignal)
  FUNCTION(ncclSignal) FUNCTION(pncclSignal)
  FUNCTION(ncclWaitSignal) FUNCTION(pncclWaitSignal)
#endif
#if NCCL_VERSION_CODE >= 23000
  FUNCTION(ncclParamBind) FUNCTION(pncclParamBind)
  FUNCTION(ncclParamGetI8) FUNCTION(pncclParamGetI8)
  FUNCTION(ncclParamGetI16) FUNCTION(pncclParamGetI16)
  FUNCTION(ncclParamGetI32) FUNCTION(pncclParamGetI32)
  FUNCTION(ncclParamGetI64) FUNCTION(pncclParamGetI64)
  FUNCTION(ncclParamGetU8) FUNCTION(pncclParamGetU8)
  FUNCTION(ncclParamGetU16) FUNCTION(pncclParamGetU16)
  FUNCTION(ncclParamGetU32) FUNCTION(pncclParamGetU32)
  FUNCTION(ncclParamGetU64) FUNCTION(pncclParamGetU64)
  FUNCTION(ncclParamGetStr) FUNCTION(pncclParamGetStr)
  FUNCTION(ncclParamGet) FUNCTION(pncclParamGet)
  FUNCTION(ncclParamGetParameter) FUNCTION(pncclParamGetParameter)
  FUNCTION(ncclParamGetAllParameterKeys) FUNCTION(pncclParamGetAllParameterKeys)
  FUNCTION(ncclParamDumpAll) FUNCTION(pncclParamDumpAll)
#endif
}

int main() {
  macros();
  enumerators();
  structures();
  initializers();
  functions();
}
