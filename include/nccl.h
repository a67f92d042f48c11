/* The NCCL 2.30.7 contract, as Weft implements it: the same names, values and layouts.
 *
 * Works with and without CUDA's headers: where cuda_runtime.h cannot be found (or
 * WEFT_NO_CUDA_HEADERS is defined), cudaStream_t is declared here as the same opaque pointer.
 *
 * Host mode (no GPU): buffers are plain host memory, the stream is ignored, and an operation is
 * complete when the call, or the outermost ncclGroupEnd, returns. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(WEFT_NO_CUDA_HEADERS) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define WEFT_HAS_CUDA_HEADERS 1
#endif
#endif

#ifdef WEFT_HAS_CUDA_HEADERS
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#if CUDART_VERSION >= 11000
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && CUDART_VERSION >= 11080
#include <cuda_fp8.h>
#endif
#else
typedef struct CUstream_st* cudaStream_t;
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 30
#define NCCL_PATCH 7
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 23007
#define NCCL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,
  ncclNumResults = 9
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_API_MAGIC 0xcafebeef

/* Flags of ncclCommWindowRegister, and the alignment it asks for. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* ncclConfig_t.CTAPolicy. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* ncclCommShrink: keep the parent usable, or abort what it is doing first. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

/* ncclCommRevoke takes no flags yet. */
#define NCCL_REVOKE_DEFAULT 0x00

/* ncclCommSuspend: give the communicator's GPU memory back until ncclCommResume. */
#define NCCL_SUSPEND_MEM 0x01

/* ncclCommMemStats. Bytes, except Suspended: 1 while the communicator is suspended. */
typedef enum {
  ncclStatGpuMemSuspend = 0, /* ncclCommSuspend gives it back */
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2, /* it stays */
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

/* Grows at the end only; size, magic and version come from NCCL_CONFIG_INITIALIZER and tell the
 * library which fields the caller knew. */
typedef struct ncclConfig_v23000 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER {                                                            \
  sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE,                                    \
  NCCL_CONFIG_UNDEF_INT /* blocking */,     NCCL_CONFIG_UNDEF_INT /* cgaClusterSize */,       \
  NCCL_CONFIG_UNDEF_INT /* minCTAs */,      NCCL_CONFIG_UNDEF_INT /* maxCTAs */,              \
  NCCL_CONFIG_UNDEF_PTR /* netName */,      NCCL_CONFIG_UNDEF_INT /* splitShare */,           \
  NCCL_CONFIG_UNDEF_INT /* trafficClass */, NCCL_CONFIG_UNDEF_PTR /* commName */,             \
  NCCL_CONFIG_UNDEF_INT /* collnetEnable */, NCCL_CONFIG_UNDEF_INT /* CTAPolicy */,           \
  NCCL_CONFIG_UNDEF_INT /* shrinkShare */,  NCCL_CONFIG_UNDEF_INT /* nvlsCTAs */,             \
  NCCL_CONFIG_UNDEF_INT /* nChannelsPerNetPeer */, NCCL_CONFIG_UNDEF_INT /* nvlinkCentricSched */, \
  NCCL_CONFIG_UNDEF_INT /* graphUsageMode */, NCCL_CONFIG_UNDEF_INT /* numRmaCtx */,          \
  NCCL_CONFIG_UNDEF_INT /* maxP2pPeers */,  NCCL_CONFIG_UNDEF_INT /* graphStreamOrdering */ }

typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER {                                                          \
  sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }
/* clang-format on */

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* first value of operators made by ncclRedOpCreate* */
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

/* clang-format off */
typedef enum {
  ncclInt8 = 0, ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2, ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6, ncclHalf = 6,
  ncclFloat32 = 7, ncclFloat = 7,
  ncclFloat64 = 8, ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;
/* clang-format on */

typedef struct ncclParamHandle* ncclParamHandle_t;

/* Every function exists twice: ncclX, a weak symbol that a profiler may replace, and pncclX, the
 * same code. */
#define WEFT_DECLARE(ret, name, args) \
  ret nccl##name args;                \
  ret pnccl##name args

/* Memory and version. */
WEFT_DECLARE(ncclResult_t, MemAlloc, (void** ptr, size_t size));
WEFT_DECLARE(ncclResult_t, MemFree, (void* ptr));
WEFT_DECLARE(ncclResult_t, GetVersion, (int* version));
WEFT_DECLARE(const char*, GetErrorString, (ncclResult_t result));
WEFT_DECLARE(const char*, GetLastError, (ncclComm_t comm));
WEFT_DECLARE(void, ResetDebugInit, (void));

/* Communicators. */
WEFT_DECLARE(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId));
WEFT_DECLARE(ncclResult_t, CommInitRank,
             (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));
WEFT_DECLARE(ncclResult_t, CommInitRankConfig,
             (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config));
WEFT_DECLARE(ncclResult_t, CommInitRankScalable,
             (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
              ncclConfig_t* config));
WEFT_DECLARE(ncclResult_t, CommInitAll, (ncclComm_t * comm, int ndev, const int* devlist));
WEFT_DECLARE(ncclResult_t, CommSplit,
             (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config));
WEFT_DECLARE(ncclResult_t, CommShrink,
             (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
              ncclConfig_t* config, int shrinkFlags));
/* Growing. One existing rank makes the id and passes it; the other existing ranks pass NULL; both
 * pass rank -1. New ranks pass comm NULL, the id, and their rank, which follows the existing ones.
 */
WEFT_DECLARE(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId));
WEFT_DECLARE(ncclResult_t, CommGrow,
             (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
              ncclComm_t* newcomm, ncclConfig_t* config));
WEFT_DECLARE(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags));
WEFT_DECLARE(ncclResult_t, CommResume, (ncclComm_t comm));
WEFT_DECLARE(ncclResult_t, CommMemStats,
             (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value));
WEFT_DECLARE(ncclResult_t, CommFinalize, (ncclComm_t comm));
WEFT_DECLARE(ncclResult_t, CommDestroy, (ncclComm_t comm));
WEFT_DECLARE(ncclResult_t, CommAbort, (ncclComm_t comm));
WEFT_DECLARE(ncclResult_t, CommRevoke, (ncclComm_t comm, int revokeFlags));
WEFT_DECLARE(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError));
WEFT_DECLARE(ncclResult_t, CommCount, (const ncclComm_t comm, int* count));
WEFT_DECLARE(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int* device));
WEFT_DECLARE(ncclResult_t, CommUserRank, (const ncclComm_t comm, int* rank));
WEFT_DECLARE(ncclResult_t, CommRegister,
             (const ncclComm_t comm, void* buff, size_t size, void** handle));
WEFT_DECLARE(ncclResult_t, CommDeregister, (const ncclComm_t comm, void* handle));
WEFT_DECLARE(ncclResult_t, CommWindowRegister,
             (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags));
WEFT_DECLARE(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
WEFT_DECLARE(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr));

/* Reduction operators made at run time. */
typedef enum {
  ncclScalarDevice = 0,        /* read while the collective runs */
  ncclScalarHostImmediate = 1, /* read before ncclRedOpCreate* returns */
} ncclScalarResidence_t;
WEFT_DECLARE(ncclResult_t, RedOpCreatePreMulSum,
             (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype,
              ncclScalarResidence_t residence, ncclComm_t comm));
WEFT_DECLARE(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* Collectives. Counts are elements; see the NCCL manual for what each buffer holds. */
WEFT_DECLARE(ncclResult_t, Reduce,
             (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, Bcast,
             (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
              cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, Broadcast,
             (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
              ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, AllReduce,
             (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
              ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, ReduceScatter,
             (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
              ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, AllGather,
             (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
              ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, AlltoAll,
             (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
              ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, Gather,
             (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
              ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, Scatter,
             (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
              ncclComm_t comm, cudaStream_t stream));

/* Point to point. */
WEFT_DECLARE(ncclResult_t, Send,
             (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
              ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, Recv,
             (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
              cudaStream_t stream));

/* One-sided calls. */
typedef struct {
  int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

WEFT_DECLARE(ncclResult_t, PutSignal,
             (const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
              ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
              ncclComm_t comm, cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, Signal,
             (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
              cudaStream_t stream));
WEFT_DECLARE(ncclResult_t, WaitSignal,
             (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream));

/* Groups: what is called between Start and the outermost End is launched together. */
WEFT_DECLARE(ncclResult_t, GroupStart, (void));
WEFT_DECLARE(ncclResult_t, GroupEnd, (void));
WEFT_DECLARE(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo));

/* Parameters: environment variables by name. Handles live as long as the process. Texts and tables
 * live until the thread's next call of the same function. */
WEFT_DECLARE(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char* key));
WEFT_DECLARE(ncclResult_t, ParamGetI8, (ncclParamHandle_t h, int8_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetI16, (ncclParamHandle_t h, int16_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetI32, (ncclParamHandle_t h, int32_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetI64, (ncclParamHandle_t h, int64_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetU8, (ncclParamHandle_t h, uint8_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetU16, (ncclParamHandle_t h, uint16_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetU32, (ncclParamHandle_t h, uint32_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetU64, (ncclParamHandle_t h, uint64_t* out));
WEFT_DECLARE(ncclResult_t, ParamGetStr, (ncclParamHandle_t h, const char** out));
WEFT_DECLARE(ncclResult_t, ParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len));
WEFT_DECLARE(ncclResult_t, ParamGetParameter, (const char* key, const char** value, int* valueLen));
WEFT_DECLARE(ncclResult_t, ParamGetAllParameterKeys, (const char*** table, int* tableLen));
WEFT_DECLARE(void, ParamDumpAll, (void));

#undef WEFT_DECLARE

#ifdef __cplusplus
}
#endif

#endif
