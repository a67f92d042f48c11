/* What Weft offers beyond NCCL. Exported by the same libnccl.so.2. */
#ifndef WEFT_H_
#define WEFT_H_

#include "nccl.h"

#define WEFT_VERSION_STRING "0.2.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "Weft 0.2.0, NCCL 2.28.9 contract". A program can look this symbol up to learn whose libnccl it
 * has. */
const char* weftVersion(void);

/* 1 when device buffers are plain host memory here (no GPU is used), else 0. */
int weftHostMode(void);

/* Where the ranks of a pipeline (WEFT_PIPELINE) or ring (WEFT_RING) of work should sit: gpus[r]
 * becomes the number of the GPU for rank r, neighbours near each other, those that talk to another
 * host beside its NIC. GPUs are numbered as `topo` lists them: a machine of the catalogue
 * ("dgx-h100x2") or a file; NULL is this machine. ncclInvalidUsage where there are fewer GPUs than
 * ranks. */
typedef enum { WEFT_PIPELINE = 0, WEFT_RING = 1 } weftPattern_t;
ncclResult_t weftPlaceRanks(const char* topo, int nranks, weftPattern_t pattern, int* gpus);

/* Which plan a call takes in this communicator, as WEFT_PLAN and `weft explain` name it.
 * `collective` is all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, gather or
 * scatter, `bytes` the size of the whole array. The text lives as long as the communicator.
 * Schedules that the user hands in are not counted. */
ncclResult_t weftPlanOf(ncclComm_t comm, const char* collective, size_t bytes, const char** plan);

/* From the next call on, such calls of any size take this plan, as if WEFT_PLAN had said so at
 * init; NULL: the one that the library chooses. For comparisons. All ranks must say the same
 * between the same calls, none of which may be in progress here. ncclInvalidUsage where there is no
 * such plan, or it does not do this for so many ranks. */
ncclResult_t weftForcePlan(ncclComm_t comm, const char* collective, const char* plan);

#ifdef __cplusplus
}
#endif

#endif
