// The five collectives, each as an MPI call and as an NCCL call.
#include "perf/compare/contests.h"

#include <mpi.h>

#include <algorithm>

namespace weft::perf {
namespace {

int as_int(size_t count) { return static_cast<int>(count); }

size_t block_of(size_t elements, int nranks) {
  return std::max<size_t>(elements / static_cast<size_t>(nranks), 1);
}

Extent whole(size_t elements, int) { return {elements, elements, elements}; }

Extent block_to_whole(size_t elements, int nranks) {
  const size_t block = block_of(elements, nranks);
  return {block, block, block * static_cast<size_t>(nranks)};
}

Extent whole_to_block(size_t elements, int nranks) {
  const size_t block = block_of(elements, nranks);
  return {block, block * static_cast<size_t>(nranks), block};
}

Extent whole_to_whole(size_t elements, int nranks) {
  const size_t block = block_of(elements, nranks);
  const size_t all = block * static_cast<size_t>(nranks);
  return {block, all, all};
}

float sum_over_ranks(int nranks, size_t i) {
  float sum = 0;
  for (int r = 0; r < nranks; ++r) sum += input_value(r, i);
  return sum;
}

constexpr Contest kContests[] = {
    {"all_reduce", whole,
     [](const float* send, float* recv, size_t count) {
       MPI_Allreduce(send, recv, as_int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
     },
     [](const float* send, float* recv, size_t count, ncclComm_t comm) {
       return ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, nullptr);
     },
     [](const Job& job, const Extent&, size_t i) { return sum_over_ranks(job.nranks, i); }},
    {"all_gather", block_to_whole,
     [](const float* send, float* recv, size_t count) {
       MPI_Allgather(send, as_int(count), MPI_FLOAT, recv, as_int(count), MPI_FLOAT,
                     MPI_COMM_WORLD);
     },
     [](const float* send, float* recv, size_t count, ncclComm_t comm) {
       return ncclAllGather(send, recv, count, ncclFloat32, comm, nullptr);
     },
     [](const Job&, const Extent& e, size_t i) {
       return input_value(as_int(i / e.count), i % e.count);
     }},
    {"reduce_scatter", whole_to_block,
     [](const float* send, float* recv, size_t count) {
       MPI_Reduce_scatter_block(send, recv, as_int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
     },
     [](const float* send, float* recv, size_t count, ncclComm_t comm) {
       return ncclReduceScatter(send, recv, count, ncclFloat32, ncclSum, comm, nullptr);
     },
     [](const Job& job, const Extent& e, size_t i) {
       return sum_over_ranks(job.nranks, static_cast<size_t>(job.rank) * e.count + i);
     }},
    // MPI broadcasts in place. So does the library here: both use `recv` as the buffer.
    {"broadcast", whole,
     [](const float*, float* recv, size_t count) {
       MPI_Bcast(recv, as_int(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
     },
     [](const float*, float* recv, size_t count, ncclComm_t comm) {
       return ncclBroadcast(recv, recv, count, ncclFloat32, 0, comm, nullptr);
     },
     [](const Job&, const Extent&, size_t i) { return input_value(0, i); }},
    {"alltoall", whole_to_whole,
     [](const float* send, float* recv, size_t count) {
       MPI_Alltoall(send, as_int(count), MPI_FLOAT, recv, as_int(count), MPI_FLOAT, MPI_COMM_WORLD);
     },
     [](const float* send, float* recv, size_t count, ncclComm_t comm) {
       return ncclAlltoAll(send, recv, count, ncclFloat32, comm, nullptr);
     },
     [](const Job& job, const Extent& e, size_t i) {
       return input_value(as_int(i / e.count),
                          static_cast<size_t>(job.rank) * e.count + i % e.count);
     }},
};

}  // namespace

std::span<const Contest> contests() { return kContests; }

}  // namespace weft::perf
