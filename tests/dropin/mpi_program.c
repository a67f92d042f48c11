/* A plain MPI and NCCL program as users write it, one process per rank. Prints one line. Exits with
 * 0 if all results are right. */
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define MPI(call)                                                \
  do {                                                           \
    if ((call) != MPI_SUCCESS) {                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #call); \
      exit(1);                                                   \
    }                                                            \
  } while (0)
#define CUDA(call)                                                                             \
  do {                                                                                         \
    cudaError_t code = (call);                                                                 \
    if (code != cudaSuccess) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(code)); \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)
#define NCCL(call)                                                                           \
  do {                                                                                       \
    ncclResult_t code = (call);                                                              \
    if (code != ncclSuccess) {                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetLastError(NULL)); \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

enum { kCount = 1 << 20 };

static float* host;

static void check(const char* what, const float* device, cudaStream_t stream, float want) {
  CUDA(cudaMemcpyAsync(host, device, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < kCount; i++) {
    if (host[i] == want) continue;
    fprintf(stderr, "%s: element %d is %g, not %g\n", what, i, host[i], want);
    exit(1);
  }
}

static void fill(float* device, cudaStream_t stream, float value) {
  for (int i = 0; i < kCount; i++) host[i] = value;
  CUDA(cudaMemcpyAsync(device, host, kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
  CUDA(cudaStreamSynchronize(stream));
}

int main(int argc, char** argv) {
  int rank, n, devices, version;
  MPI(MPI_Init(&argc, &argv));
  MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  MPI(MPI_Comm_size(MPI_COMM_WORLD, &n));
  CUDA(cudaGetDeviceCount(&devices));
  CUDA(cudaSetDevice(rank % devices));
  ncclUniqueId id;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  MPI(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, n, id, rank));
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  float *in, *out;
  CUDA(cudaMalloc((void**)&in, kCount * sizeof(float)));
  CUDA(cudaMalloc((void**)&out, kCount * sizeof(float)));
  CUDA(cudaMallocHost((void**)&host, kCount * sizeof(float)));
  fill(in, stream, (float)rank);
  NCCL(ncclAllReduce(in, out, kCount, ncclFloat, ncclSum, comm, stream));
  check("ncclAllReduce", out, stream, n * (n - 1) / 2.0f);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(in, kCount, ncclFloat, (rank + 1) % n, comm, stream));
  NCCL(ncclRecv(out, kCount, ncclFloat, (rank + n - 1) % n, comm, stream));
  NCCL(ncclGroupEnd());
  check("ncclSend and ncclRecv", out, stream, (float)((rank + n - 1) % n));
  NCCL(ncclBroadcast(in, out, kCount, ncclFloat, n - 1, comm, stream));
  check("ncclBroadcast", out, stream, (float)(n - 1));
  NCCL(ncclGetVersion(&version));
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFreeHost(host));
  CUDA(cudaFree(out));
  CUDA(cudaFree(in));
  if (rank == 0) printf("%d ranks, NCCL %d: all right\n", n, version);
  MPI(MPI_Finalize());
  return 0;
}
