// One conformance case (operation, type, operator, root, count, placement), and its run on one
// rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/guarded_buffer.h"
#include "tests/support/reference.h"

namespace weft::test {

enum class Operation {
  kAllReduce,
  kReduce,
  kBroadcast,
  kBcast,
  kAllGather,
  kReduceScatter,
  kAlltoAll,
  kGather,
  kScatter,
  kSendRecv,  // to the next rank, from the previous rank
};

const std::vector<Operation>& all_operations();
const char* name_of(Operation operation);
const char* weft_name(Operation operation);  // as weft.h spells it
bool reduces(Operation operation);
bool has_root(Operation operation);
bool can_be_in_place(Operation operation);

// The allocator of the buffers. It is the same on all ranks, or ncclMemAlloc on odd ranks only.
enum class Placement { kMalloc, kNcclMemAlloc, kMixed };

// All ranks have the same Case. The case and the rank determine the data.
struct Case {
  Operation operation = Operation::kAllReduce;
  ncclDataType_t type = ncclFloat32;
  Reduction reduction = Reduction::kSum;  // for operations that reduce
  int root = 0;                           // for operations that have a root
  size_t count = 1;
  bool in_place = false;
  Placement placement = Placement::kMalloc;
  bool shifted = false;  // buffers start one element off their alignment
  uint64_t salt = 1;     // gives this case its own data
  int parts = 0;         // 0: NCCL's call; otherwise weftPartitioned
};

std::string to_string(const Case& c, int nranks);

// Offsets of input and result in the shared buffer of an in-place case, in elements.
struct InPlace {
  size_t send_at = 0, receive_at = 0;
};
InPlace in_place_of(const Case& c, int rank);

// The call of a case by one rank.
struct CaseCall {
  int rank = 0;
  int nranks = 1;
  ncclComm_t comm = nullptr;
  const void* send = nullptr;
  void* receive = nullptr;
  ncclRedOp_t op = ncclSum;
  cudaStream_t stream = nullptr;
};
ncclResult_t issue(const Case& c, const CaseCall& call);

// "" or the error in the result of `rank`.
std::string wrong_elements(const Case& c, int rank, int nranks, const char* got);

// A case on one rank. The constructor fills the buffers; then call launch() once, then check().
class CaseRun {
 public:
  CaseRun(const Case& c, int rank, int nranks, ncclComm_t comm);
  ~CaseRun();
  CaseRun(const CaseRun&) = delete;
  CaseRun& operator=(const CaseRun&) = delete;

  ncclResult_t launch();
  // "" or the error: a wrong result, a changed input, a write outside the buffers.
  std::string check() const;

 private:
  const void* send() const;
  void* receive() const;

  Case case_;
  const NumberType& type_;
  int rank_;
  int nranks_;
  ncclComm_t comm_;
  ncclRedOp_t op_ = ncclSum;
  bool owns_op_ = false;
  uint64_t scalar_ = 0;
  size_t send_count_ = 0;     // elements of this rank's input; 0 if it has none
  size_t receive_count_ = 0;  // elements of this rank's result; 0 if it has none
  size_t send_at_ = 0;        // in place: offset of the input in the shared buffer, in elements
  size_t receive_at_ = 0;
  std::vector<char> input_;  // the input before the call
  std::unique_ptr<GuardedBuffer> send_buffer_;
  std::unique_ptr<GuardedBuffer> receive_buffer_;  // null when in place
};

// Constructs, launches and checks. "" or the error with the case's description.
std::string run_case(const Case& c, int rank, int nranks, ncclComm_t comm);

}  // namespace weft::test
