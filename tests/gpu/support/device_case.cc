// See device_case.h.
#include "tests/gpu/support/device_case.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
#include "tests/support/case_data.h"

namespace weft::test {
namespace {

constexpr size_t kGuard = 256;
constexpr char kPoison = static_cast<char>(0xa5);

size_t aligned(size_t value) { return (value + 255) / 256 * 256; }

}  // namespace

DeviceCase::DeviceCase(const Case& c, int rank, int nranks, ncclComm_t comm, Arena& arena,
                       cudaStream_t stream, Offsets offsets)
    : case_(c), rank_(rank), nranks_(nranks), comm_(comm) {
  if (case_.operation == Operation::kBcast) case_.in_place = true;
  const size_t size = type_of(c.type).bytes;
  const size_t in = input_count(case_, rank, nranks), out = result_count(case_, rank, nranks);
  receive_bytes_ = out * size;
  send_at_ = kGuard + offsets.send;
  if (case_.in_place) {
    const InPlace at = in_place_of(case_, rank);
    receive_at_ = send_at_ + at.receive_at * size;
    const size_t end = send_at_ + std::max(at.send_at + in, at.receive_at + out) * size;
    send_at_ += at.send_at * size;
    bytes_ = end + kGuard;
  } else {
    // A rank without an input or a result still gets a buffer. The buffer must not change.
    receive_at_ =
        aligned(send_at_ + std::max(in, c.count) * size + kGuard) + kGuard + offsets.receive;
    bytes_ = receive_at_ + std::max(out, c.count) * size + kGuard;
  }
  memory_ = arena.take(bytes_);
  before_ = arena.take(bytes_);
  fill(c.salt, stream);
  if (!reduces(case_.operation)) return;
  if (case_.reduction != Reduction::kPreMulSum) {
    op_ = built_in(case_.reduction);
    return;
  }
  scalar_ = premul_scalar(type_of(c.type), rank);
  if (ncclRedOpCreatePreMulSum(&op_, &scalar_, c.type, ncclScalarHostImmediate, comm) !=
      ncclSuccess)
    throw std::runtime_error(std::string("ncclRedOpCreatePreMulSum: ") + ncclGetLastError(comm));
  owns_op_ = true;
}

DeviceCase::~DeviceCase() {
  if (owns_op_) ncclRedOpDestroy(op_, comm_);
}

void DeviceCase::fill(uint64_t salt, cudaStream_t stream) {
  case_.salt = salt;
  const std::vector<char> input = input_bytes(case_, rank_, nranks_);
  image_.assign(bytes_, kPoison);
  if (!input.empty()) std::memcpy(image_.data() + send_at_, input.data(), input.size());
  upload(before_, image_.data(), bytes_, stream);
  refill(stream);
  WEFT_CUDA(cudaStreamSynchronize(stream));
}

void DeviceCase::refill(cudaStream_t stream) {
  WEFT_CUDA(cudaMemcpyAsync(memory_, before_, bytes_, cudaMemcpyDeviceToDevice, stream));
}

ncclResult_t DeviceCase::launch(cudaStream_t stream) {
  return issue(case_,
               {rank_, nranks_, comm_, memory_ + send_at_, memory_ + receive_at_, op_, stream});
}

std::string DeviceCase::check(cudaStream_t stream) const {
  std::vector<char> now(bytes_);
  download(now.data(), memory_, bytes_, stream);
  std::string bad;
  if (receive_bytes_ > 0) bad = wrong_elements(case_, rank_, nranks_, now.data() + receive_at_);
  // Outside the result nothing may have changed.
  const auto compare = [&](size_t begin, size_t end) {
    if (std::memcmp(now.data() + begin, image_.data() + begin, end - begin) == 0) return;
    size_t at = begin;
    while (now[at] == image_[at]) ++at;
    const bool before = at < receive_at_;
    bad += "byte " + std::to_string(before ? receive_at_ - at : at - receive_at_ - receive_bytes_) +
           (before ? " before" : " after") + " the result changed; ";
  };
  compare(0, receive_at_);
  compare(receive_at_ + receive_bytes_, bytes_);
  return bad;
}

std::string run_device_case(const Case& c, int rank, int nranks, ncclComm_t comm, Arena& arena,
                            cudaStream_t stream, Offsets offsets) {
  const std::string where = "rank " + std::to_string(rank) + ", " + to_string(c, nranks) + ": ";
  DeviceCase run(c, rank, nranks, comm, arena, stream, offsets);
  if (const ncclResult_t result = run.launch(stream); result != ncclSuccess)
    return where + ncclGetErrorString(result) + ": " + ncclGetLastError(comm);
  const std::string bad = run.check(stream);
  return bad.empty() ? bad : where + bad;
}

}  // namespace weft::test
