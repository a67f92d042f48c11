// A case on one rank: buffers, the call, and the comparison with the reference.
#include "tests/support/case.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "tests/support/case_data.h"
#include "tests/support/device.h"
#include "weft.h"

namespace weft::test {
namespace {

Memory memory_for(const Case& c, int rank) {
  if (c.placement == Placement::kMixed)
    return rank % 2 == 1 ? Memory::kNcclMemAlloc : Memory::kMalloc;
  return c.placement == Placement::kNcclMemAlloc ? Memory::kNcclMemAlloc : Memory::kMalloc;
}

}  // namespace

const std::vector<Operation>& all_operations() {
  static const std::vector<Operation> all = {
      Operation::kAllReduce, Operation::kReduce,        Operation::kBroadcast, Operation::kBcast,
      Operation::kAllGather, Operation::kReduceScatter, Operation::kAlltoAll,  Operation::kGather,
      Operation::kScatter,   Operation::kSendRecv};
  return all;
}

const char* name_of(Operation operation) {
  static const char* const names[] = {"AllReduce", "Reduce",        "Broadcast", "Bcast",
                                      "AllGather", "ReduceScatter", "AlltoAll",  "Gather",
                                      "Scatter",   "SendRecv"};
  return names[static_cast<int>(operation)];
}

const char* weft_name(Operation operation) {
  static const char* const names[] = {"all_reduce", "reduce",         "broadcast", "broadcast",
                                      "all_gather", "reduce_scatter", "alltoall",  "gather",
                                      "scatter",    "sendrecv"};
  return names[static_cast<int>(operation)];
}

bool reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

bool has_root(Operation operation) {
  return operation == Operation::kReduce || operation == Operation::kBroadcast ||
         operation == Operation::kBcast || operation == Operation::kGather ||
         operation == Operation::kScatter;
}

// NCCL leaves AlltoAll in place undefined; Weft supports it.
bool can_be_in_place(Operation operation) { return operation != Operation::kSendRecv; }

std::string to_string(const Case& c, int nranks) {
  std::ostringstream out;
  out << name_of(c.operation) << ' ' << type_of(c.type).name;
  if (reduces(c.operation)) out << ' ' << name_of(c.reduction);
  out << " count=" << c.count << " ranks=" << nranks;
  if (has_root(c.operation)) out << " root=" << c.root;
  out << (c.in_place ? " in place" : " out of place");
  if (c.placement == Placement::kNcclMemAlloc) out << " ncclMemAlloc";
  if (c.placement == Placement::kMixed) out << " mixed malloc/ncclMemAlloc";
  if (c.shifted) out << " unaligned";
  if (c.parts > 0) out << " in " << c.parts << " parts";
  return out.str();
}

InPlace in_place_of(const Case& c, int rank) {
  const size_t block = static_cast<size_t>(rank) * c.count;
  InPlace at;
  if (c.operation == Operation::kAllGather) at.send_at = block;
  if (c.operation == Operation::kReduceScatter) at.receive_at = block;
  if (c.operation == Operation::kGather && rank == c.root) at.send_at = block;
  if (c.operation == Operation::kScatter && rank == c.root) at.receive_at = block;
  return at;
}

CaseRun::CaseRun(const Case& c, int rank, int nranks, ncclComm_t comm)
    : case_(c), type_(type_of(c.type)), rank_(rank), nranks_(nranks), comm_(comm) {
  // Bcast has one buffer by definition, as every in-place case has.
  if (case_.operation == Operation::kBcast) case_.in_place = true;
  send_count_ = input_count(case_, rank, nranks);
  receive_count_ = result_count(case_, rank, nranks);
  input_ = input_bytes(case_, rank, nranks);
  const size_t offset = case_.shifted ? type_.bytes : 0;
  if (case_.in_place) {
    send_at_ = in_place_of(case_, rank).send_at;
    receive_at_ = in_place_of(case_, rank).receive_at;
    const size_t elements = std::max({send_at_ + send_count_, receive_at_ + receive_count_});
    send_buffer_ =
        std::make_unique<GuardedBuffer>(elements * type_.bytes, memory_for(c, rank), offset);
  } else {
    // A rank without an input or a result still gets a buffer. The buffer must not change.
    const size_t in = std::max(send_count_, case_.count);
    const size_t out = std::max(receive_count_, case_.count);
    send_buffer_ = std::make_unique<GuardedBuffer>(in * type_.bytes, memory_for(c, rank), offset);
    receive_buffer_ =
        std::make_unique<GuardedBuffer>(out * type_.bytes, memory_for(c, rank), offset);
  }
  if (!input_.empty()) {
    std::memcpy(send_buffer_->bytes() + send_at_ * type_.bytes, input_.data(), input_.size());
  }
  if (!reduces(case_.operation)) return;
  if (case_.reduction != Reduction::kPreMulSum) {
    op_ = built_in(case_.reduction);
    return;
  }
  scalar_ = premul_scalar(type_, rank);
  const auto residence = case_.salt % 2 == 0 ? ncclScalarDevice : ncclScalarHostImmediate;
  if (ncclRedOpCreatePreMulSum(&op_, &scalar_, case_.type, residence, comm_) != ncclSuccess) {
    throw std::runtime_error(std::string("ncclRedOpCreatePreMulSum: ") + ncclGetLastError(comm_));
  }
  owns_op_ = true;
}

CaseRun::~CaseRun() {
  if (owns_op_) ncclRedOpDestroy(op_, comm_);
}

const void* CaseRun::send() const { return send_buffer_->bytes() + send_at_ * type_.bytes; }

void* CaseRun::receive() const {
  const GuardedBuffer& buffer = receive_buffer_ ? *receive_buffer_ : *send_buffer_;
  return buffer.bytes() + receive_at_ * type_.bytes;
}

ncclResult_t CaseRun::launch() {
  return issue(case_, {rank_, nranks_, comm_, send(), receive(), op_, stream_of(comm_)});
}

ncclResult_t issue(const Case& c, const CaseCall& to) {
  if (c.parts > 0)
    return weftPartitioned(to.comm, weft_name(c.operation),
                           c.operation == Operation::kBcast ? to.receive : to.send, to.receive,
                           c.count, c.type, to.op, c.root, c.parts, nullptr, nullptr, to.stream);
  switch (c.operation) {
    case Operation::kAllReduce:
      return ncclAllReduce(to.send, to.receive, c.count, c.type, to.op, to.comm, to.stream);
    case Operation::kReduce:
      return ncclReduce(to.send, to.receive, c.count, c.type, to.op, c.root, to.comm, to.stream);
    case Operation::kBroadcast:
      return ncclBroadcast(to.send, to.receive, c.count, c.type, c.root, to.comm, to.stream);
    case Operation::kBcast:
      return ncclBcast(to.receive, c.count, c.type, c.root, to.comm, to.stream);
    case Operation::kAllGather:
      return ncclAllGather(to.send, to.receive, c.count, c.type, to.comm, to.stream);
    case Operation::kReduceScatter:
      return ncclReduceScatter(to.send, to.receive, c.count, c.type, to.op, to.comm, to.stream);
    case Operation::kAlltoAll:
      return ncclAlltoAll(to.send, to.receive, c.count, c.type, to.comm, to.stream);
    case Operation::kGather:
      return ncclGather(to.send, to.receive, c.count, c.type, c.root, to.comm, to.stream);
    case Operation::kScatter:
      return ncclScatter(to.send, to.receive, c.count, c.type, c.root, to.comm, to.stream);
    case Operation::kSendRecv: {
      if (const ncclResult_t r = ncclGroupStart(); r != ncclSuccess) return r;
      const int next = (to.rank + 1) % to.nranks, last = (to.rank + to.nranks - 1) % to.nranks;
      const ncclResult_t sent = ncclSend(to.send, c.count, c.type, next, to.comm, to.stream);
      const ncclResult_t received = ncclRecv(to.receive, c.count, c.type, last, to.comm, to.stream);
      const ncclResult_t ended = ncclGroupEnd();
      return sent != ncclSuccess ? sent : received != ncclSuccess ? received : ended;
    }
  }
  return ncclInternalError;
}

std::string wrong_elements(const Case& c, int rank, int nranks, const char* got) {
  const NumberType& type = type_of(c.type);
  const std::vector<char> expected = result_bytes(c, rank, nranks);
  const bool exact = !reduces(c.operation) || reduction_is_exact(type, c.reduction, nranks);
  if (exact && std::memcmp(got, expected.data(), expected.size()) == 0) return {};
  const size_t first =
      c.operation == Operation::kReduceScatter ? static_cast<size_t>(rank) * c.count : 0;
  const size_t count = expected.size() / type.bytes;
  size_t wrong = 0;
  std::ostringstream out;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t g = load(type, got + i * type.bytes);
    const uint64_t e = load(type, expected.data() + i * type.bytes);
    if (g == e) continue;
    if (!exact && close_enough(type, c.reduction, column_at(c, nranks, first + i), g)) continue;
    if (++wrong == 1) {
      out << "element " << i << " is 0x" << std::hex << g << ", expected 0x" << e << std::dec;
      if (type.is_float) out << " (" << decode(type, g) << ", expected " << decode(type, e) << ")";
    }
  }
  if (wrong == 0) return {};
  out << ", " << wrong << " of " << count << " wrong; ";
  return out.str();
}

std::string CaseRun::check() const {
  std::string bad = finish(comm_);
  if (receive_count_ > 0) {
    bad += wrong_elements(case_, rank_, nranks_, static_cast<const char*>(receive()));
  }
  bad += send_buffer_->check_guards();
  if (receive_buffer_) {
    bad += receive_buffer_->check_guards();
    bad += receive_buffer_->check_poison(receive_count_ * type_.bytes, receive_buffer_->size());
    bad += send_buffer_->check_poison(send_count_ * type_.bytes, send_buffer_->size());
  }
  // No result overwrites this part of the input, so it must not change.
  const size_t size = type_.bytes;
  const size_t result_begin = receive_buffer_ ? 0 : receive_at_ * size;
  const size_t result_end = receive_buffer_ ? 0 : (receive_at_ + receive_count_) * size;
  for (size_t i = 0; i < input_.size(); ++i) {
    const size_t at = send_at_ * size + i;
    if (at >= result_begin && at < result_end) {
      i += result_end - at - 1;
      continue;
    }
    if (send_buffer_->bytes()[at] != input_[i]) {
      bad += "the input changed at byte " + std::to_string(i) + "; ";
      break;
    }
  }
  return bad;
}

std::string run_case(const Case& c, int rank, int nranks, ncclComm_t comm) {
  const std::string where = "rank " + std::to_string(rank) + ", " + to_string(c, nranks) + ": ";
  CaseRun run(c, rank, nranks, comm);
  if (const ncclResult_t result = run.launch(); result != ncclSuccess) {
    return where + ncclGetErrorString(result) + ": " + ncclGetLastError(comm);
  }
  const std::string bad = run.check();
  return bad.empty() ? bad : where + bad;
}

}  // namespace weft::test
