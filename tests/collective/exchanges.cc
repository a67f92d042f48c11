// See exchanges.h.
#include "tests/collective/exchanges.h"

#include <cstring>

#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr unsigned char kUntouched = 0xa5;

size_t bytes_of(ncclDataType_t type) {
  return type == ncclInt8 ? 1 : type == ncclFloat16 ? 2 : type == ncclInt32 ? 4 : 8;
}

unsigned char content(const Exchange& e, int from, int to, size_t byte) {
  return static_cast<unsigned char>(
      mix(e.salt + static_cast<uint64_t>(from * 64 + to) * 1'000'003 + byte / 8) >> (byte % 8 * 8));
}

// One side of a rank's part in an exchange.
struct Side {
  std::vector<size_t> counts, displs;
  size_t elements = 0;

  void add(size_t count, size_t gap) {
    elements += gap;
    counts.push_back(count);
    displs.push_back(elements);
    elements += count;
  }
  const size_t* displacements(const Exchange& e) const {
    return e.gap == 0 ? nullptr : displs.data();
  }
};

class Buffer {
 public:
  Buffer(size_t bytes, bool allocated) : bytes_(bytes), allocated_(allocated) {
    if (allocated) ncclMemAlloc(&memory_, bytes + 64);
    if (!allocated) own_.resize(bytes + 64);
    std::memset(data(), kUntouched, bytes + 64);
  }
  ~Buffer() {
    if (allocated_) ncclMemFree(memory_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  unsigned char* data() { return allocated_ ? static_cast<unsigned char*>(memory_) : own_.data(); }
  size_t size() const { return bytes_ + 64; }

 private:
  size_t bytes_;
  bool allocated_;
  void* memory_ = nullptr;
  std::vector<unsigned char> own_;
};

ncclResult_t as_messages(const Exchange& e, ncclComm_t comm, unsigned char* in, const Side& out_of,
                         unsigned char* out, const Side& into) {
  const size_t element = bytes_of(e.type);
  ncclGroupStart();
  for (int peer = 0; peer < e.nranks; peer++) {
    const auto p = static_cast<size_t>(peer);
    ncclRecv(out + into.displs[p] * element, into.counts[p], e.type, peer, comm, nullptr);
    ncclSend(in + out_of.displs[p] * element, out_of.counts[p], e.type, peer, comm, nullptr);
  }
  return ncclGroupEnd();
}

}  // namespace

Exchange random_exchange(int nranks, uint64_t seed) {
  static constexpr ncclDataType_t kTypes[] = {ncclInt8, ncclFloat16, ncclInt32, ncclFloat64};
  Exchange e;
  e.nranks = nranks;
  e.salt = seed;
  e.type = kTypes[seed % 4];
  e.gap = (seed >> 8) % 3 * 5;
  e.parts = (seed >> 16) % 2 == 0 ? 1 : 1 + static_cast<int>((seed >> 20) % 64);
  e.messages = (seed >> 32) % 3 == 0;
  e.allocated = (seed >> 40) % 2 == 0;
  const size_t scale = size_t{1} << (seed >> 48) % 18;
  for (int pair = 0; pair < nranks * nranks; pair++) {
    const uint64_t random = mix(seed, static_cast<uint64_t>(pair));
    const bool large = random % 7 == 0;
    e.counts.push_back(random % 4 == 0 ? 0 : (random >> 8) % (large ? 4 * scale : scale / 8 + 2));
  }
  return e;
}

std::string run_exchange(const Exchange& e, int rank, ncclComm_t comm) {
  Side out_of, into;
  for (int peer = 0; peer < e.nranks; peer++) {
    out_of.add(e.count(rank, peer), e.gap);
    into.add(e.count(peer, rank), e.gap);
  }
  const size_t element = bytes_of(e.type);
  Buffer in(out_of.elements * element, e.allocated), out(into.elements * element, e.allocated);
  std::vector<unsigned char> expected(out.size(), kUntouched);
  for (int peer = 0; peer < e.nranks; peer++) {
    const auto p = static_cast<size_t>(peer);
    for (size_t b = 0; b < out_of.counts[p] * element; b++)
      in.data()[out_of.displs[p] * element + b] = content(e, rank, peer, b);
    for (size_t b = 0; b < into.counts[p] * element; b++)
      expected[into.displs[p] * element + b] = content(e, peer, rank, b);
  }
  std::vector<unsigned> done(static_cast<size_t>(e.parts), 0);
  const ncclResult_t result =
      e.messages ? as_messages(e, comm, in.data(), out_of, out.data(), into)
                 : weftAllToAllv(in.data(), out_of.counts.data(), out_of.displacements(e),
                                 out.data(), into.counts.data(), into.displacements(e), e.type,
                                 comm, e.parts, nullptr, done.data(), nullptr);
  if (result != ncclSuccess) return ncclGetLastError(comm);
  for (size_t p = 0; p < done.size() && !e.messages; p++)
    if (done[p] != 1) return "part " + std::to_string(p) + " is not done";
  for (size_t b = 0; b < expected.size(); b++)
    if (out.data()[b] != expected[b])
      return "byte " + std::to_string(b) + " of " + std::to_string(expected.size()) + " is wrong";
  return "";
}

}  // namespace weft::test
