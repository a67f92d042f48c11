/* Functions beyond NCCL. The same libnccl.so.2 exports them. */
#ifndef WEFT_H_
#define WEFT_H_

#include "nccl.h"

#define WEFT_VERSION_STRING "0.2.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "Weft 0.2.0, NCCL 2.30.7 contract". A program can look this symbol up to learn that its libnccl
 * is Weft. */
const char* weftVersion(void);

/* 1: host mode, buffers are plain host memory and no GPU is used. 0: GPUs are used. */
int weftHostMode(void);

/* Advises which GPU each rank of a pipeline (WEFT_PIPELINE) or ring (WEFT_RING) of work should use.
 * gpus[r] becomes the number of the GPU for rank r. Neighbours are near each other, and a rank that
 * talks to another host is near a NIC. `topo` is a machine of the catalogue ("dgx-h100x2") or a
 * file; NULL is this machine. GPUs are numbered in its order. ncclInvalidUsage: there are fewer
 * GPUs than ranks. */
typedef enum { WEFT_PIPELINE = 0, WEFT_RING = 1 } weftPattern_t;
ncclResult_t weftPlaceRanks(const char* topo, int nranks, weftPattern_t pattern, int* gpus);

/* Names the plan that a call runs in this communicator: a generator as in WEFT_PLAN, the path of an
 * imported schedule, the name of a synthesized schedule, or "copy_engines". The call is out of
 * place, has root 0 and is not captured in a graph. `collective` is all_reduce, all_gather,
 * reduce_scatter, broadcast, reduce, alltoall, gather or scatter. `bytes` is the size of the whole
 * array, of float32 sums where it divides by 4, so compression shows. Where peers cannot reach a
 * call's buffers, "peer_memory" goes through scratch memory. The text lives as long as the
 * communicator. */
ncclResult_t weftPlanOf(ncclComm_t comm, const char* collective, size_t bytes, const char** plan);

/* Forces a plan for all calls of a collective, from the next call on, as WEFT_PLAN does at init.
 * NULL: the library chooses again. For comparisons. All ranks must force the same plan between the
 * same calls. No call may be in progress on this communicator. ncclInvalidUsage: there is no such
 * plan, or it cannot run this collective on these ranks. */
ncclResult_t weftForcePlan(ncclComm_t comm, const char* collective, const char* plan);

/* Compresses what goes between hosts, from the next call on: "off", "auto", or codecs as
 * "all_gather=int8,reduce_scatter=int4:block=128:feedback" (docs/compression.md). Collective: all
 * ranks must call it with the same text between the same calls. ncclInvalidUsage: the texts differ,
 * on all ranks, or these GPUs cannot; nothing changes then. GPUs that are alone on their hosts can
 * if WEFT_COMPRESS was set when the communicator was made. Afterwards calls from 1 MiB on whose
 * type or operator cannot be compressed return ncclInvalidArgument. Waits for calls of a
 * non-blocking communicator that are under way: they keep the setting they were made with. Not
 * inside a group. */
ncclResult_t weftCommSetCompression(ncclComm_t comm, const char* setting);

/* What compression did in this communicator so far, on this rank. */
typedef struct {
  unsigned long long calls;        /* that were compressed */
  unsigned long long bytes_before; /* that this rank would have sent to other hosts in them */
  unsigned long long bytes_after;  /* that it sent */
  int passes;                      /* most lossy encodings between an input and a result */
  double bound; /* most that one encoding changes an element, as a share of the largest magnitude
                   in its block */
} weftCompression_t;
ncclResult_t weftCompressionReport(ncclComm_t comm, weftCompression_t* report);

/* A collective in parts. Part p is elements [begin, begin + length) of every block, as weftPart()
 * says: of what a rank sends to or gets from each rank in all_gather, reduce_scatter, alltoall,
 * gather and scatter, of the whole array otherwise. Parts complete in order. done[p] becomes 1 when
 * this rank's part p is complete: its results are there, and its input is not needed any more.
 * Part p begins when ready[p] is not 0. Until then its input may change. The caller sets all words
 * to 0 before the call. `ready`, `done`: NULL, or an array of `parts` words (1 to 1024).
 * `collective` and `count` are as in weftPlanOf and NCCL's call; `op` and `root` count where the
 * collective has them. All ranks give the same number of parts. The bits of a sum may differ from
 * those of one call, because each part gets its own plan.
 *
 * GPUs: words are in memory that the GPU reaches, and suit cuStreamWaitValue32. The stream itself
 * waits for ready[p], so nothing that sets it may come later in that stream. Host mode: the call
 * returns when all parts are complete; other threads may set and read the words. */
ncclResult_t weftPartitioned(ncclComm_t comm, const char* collective, const void* sendbuff,
                             void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                             int root, int parts, const unsigned* ready, unsigned* done,
                             cudaStream_t stream);
ncclResult_t weftPart(size_t count, ncclDataType_t datatype, int parts, int part, size_t* begin,
                      size_t* length);

/* Host mode: as weftPartitioned, on a thread of the library. weftWait() returns when all parts are
 * complete, with the result, and frees the request. It must follow, before the communicator's next
 * call and before its end. ncclInvalidUsage: GPUs are used, or this thread has a group open. */
typedef struct weftRequest* weftRequest_t;
ncclResult_t weftStart(ncclComm_t comm, const char* collective, const void* sendbuff,
                       void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                       int root, int parts, const unsigned* ready, unsigned* done,
                       weftRequest_t* request);
ncclResult_t weftWait(weftRequest_t request);

/* All-to-all of blocks of different lengths. This rank sends sendcounts[r] elements at sdispls[r]
 * to rank r, and receives recvcounts[r] elements at rdispls[r] from it. Displacements are in
 * elements; NULL: blocks follow each other. Counts may be 0. Buffers must not overlap. `parts`,
 * `ready` and `done` are as in weftPartitioned: part p is part p of every block. The plain call has
 * 1, NULL and NULL. ncclInvalidUsage: in host mode, a rank sends another number of elements than
 * its peer expects; the text names both. The same exchange as a group of ncclSend and ncclRecv
 * takes the same plan. */
ncclResult_t weftAllToAllv(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                           void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                           ncclDataType_t datatype, ncclComm_t comm, int parts,
                           const unsigned* ready, unsigned* done, cudaStream_t stream);

/* The class of a communicator's calls on this rank, from the next call on: 1 (high), 0 (normal, as
 * at first) or -1 (low). WEFT_PRIORITY sets it at init. While calls of a higher class move data in
 * this process, lower ones pause, for at most 2 ms at a time, and then move up to 4 MB. Proxies
 * serve connections by class. On GPUs kernels of a high (low) class have the highest (lowest)
 * priority that CUDA has; those of the normal class have their stream's. All ranks should set the
 * same. */
ncclResult_t weftCommSetPriority(ncclComm_t comm, int priority);

#ifdef __cplusplus
}
#endif

#endif
