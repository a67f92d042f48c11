// A collective as the perf programs see it: its shape, its call and its expected output.
#pragma once

#include <cstddef>
#include <vector>

#include "nccl.h"

namespace weft::perf {

// Numbers of elements for one rank of a communicator.
struct Shape {
  size_t param = 0;          // the count argument of the call
  size_t send = 0;           // elements read from the send buffer
  size_t recv = 0;           // elements written to the receive buffer
  size_t send_in_place = 0;  // in place, rank r sends from element r * send_in_place of the buffer
  size_t recv_in_place = 0;  // in place, rank r receives at element r * recv_in_place
  size_t extent() const { return send > recv ? send : recv; }
};

// One call by one rank.
struct Call {
  const std::byte* send;
  std::byte* recv;
  size_t count;  // Shape::param
  ncclDataType_t type;
  size_t type_size;
  ncclRedOp_t op;
  int root;
  int rank;
  int nranks;
  ncclComm_t comm;
  cudaStream_t stream;
  int phase;
};

inline constexpr int kReduced = -1;

// Elements [at, at + count) of a rank's output equal elements [from, from + count) of the input of
// rank `source`, or of the reduction over all ranks when source is kReduced.
struct Segment {
  size_t at;
  size_t count;
  int source;
  size_t from;
};

// The rank whose segments are asked for.
struct Place {
  int rank;
  int nranks;
  int root;
};

// Each collective's file defines exactly one of these, named kCollective.
struct Collective {
  const char* program;
  bool reduces = false;
  bool rooted = false;
  // False if source and destination overlap in place: the columns are timed, #wrong is N/A.
  bool in_place_checked = true;
  Shape (*shape)(size_t count, int nranks);
  ncclResult_t (*run)(const Call& call);
  std::vector<Segment> (*expected)(const Shape& shape, const Place& place);
  double (*bus_factor)(int nranks);
  // Elements that count as "the size" for algbw. Null means Shape::extent().
  size_t (*algorithm_elements)(const Shape& shape, int nranks) = nullptr;
  // Number of calls in a row, each using the data of the call before. Null means one.
  int (*phases)(int nranks) = nullptr;
  // Returns why it cannot run on this many ranks, or null if it can. May itself be null.
  const char* (*refuses)(int nranks) = nullptr;
};

extern const Collective kCollective;

inline std::byte* element(std::byte* base, size_t index, size_t type_size) {
  return base + index * type_size;
}
inline const std::byte* element(const std::byte* base, size_t index, size_t type_size) {
  return base + index * type_size;
}

// All calls posted between construction and finish() are one NCCL group. Keeps the first error.
class Group {
 public:
  Group() : result_(ncclGroupStart()) {}
  void add(ncclResult_t result) {
    if (result_ == ncclSuccess) result_ = result;
  }
  ncclResult_t finish() {
    add(ncclGroupEnd());
    return result_;
  }

 private:
  ncclResult_t result_;
};

}  // namespace weft::perf
