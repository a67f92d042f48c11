// Inputs and results of a case, made by tiling one period of elements.
#include "tests/support/case_data.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace weft::test {
namespace {

// Elements first..first+count of the sequence element(i % kPeriod), appended to `to`.
void tile(const NumberType& type, size_t first, size_t count,
          const std::function<uint64_t(size_t)>& element, std::vector<char>& to) {
  const size_t begin = to.size();
  to.resize(begin + count * type.bytes);
  char* out = to.data() + begin;
  const size_t made = std::min(count, kPeriod);
  for (size_t i = 0; i < made; ++i)
    store(type, element((first + i) % kPeriod), out + i * type.bytes);
  // Copies double in size. Every copy starts a whole number of periods after its source.
  for (size_t done = made; done < count;) {
    const size_t n = std::min(done, count - done);
    std::memcpy(out + done * type.bytes, out, n * type.bytes);
    done += n;
  }
}

}  // namespace

std::vector<uint64_t> column_at(const Case& c, int nranks, size_t index) {
  return reduction_column(type_of(c.type), c.reduction, nranks, c.salt, index % kPeriod);
}

size_t input_count(const Case& c, int rank, int nranks) {
  const auto n = static_cast<size_t>(nranks);
  switch (c.operation) {
    case Operation::kReduceScatter:
    case Operation::kAlltoAll:
      return n * c.count;
    case Operation::kScatter:
      return rank == c.root ? n * c.count : 0;
    case Operation::kBroadcast:
    case Operation::kBcast:
      return rank == c.root ? c.count : 0;
    default:
      return c.count;
  }
}

size_t result_count(const Case& c, int rank, int nranks) {
  const auto n = static_cast<size_t>(nranks);
  switch (c.operation) {
    case Operation::kAllGather:
    case Operation::kAlltoAll:
      return n * c.count;
    case Operation::kGather:
      return rank == c.root ? n * c.count : 0;
    case Operation::kReduce:
      return rank == c.root ? c.count : 0;
    default:
      return c.count;
  }
}

std::vector<char> input_bytes(const Case& c, int rank, int nranks) {
  const NumberType& type = type_of(c.type);
  std::vector<char> bytes;
  tile(
      type, 0, input_count(c, rank, nranks),
      [&](size_t i) {
        return reduces(c.operation) ? column_at(c, nranks, i)[static_cast<size_t>(rank)]
                                    : moved_element(type, rank, c.salt, i);
      },
      bytes);
  return bytes;
}

std::vector<char> result_bytes(const Case& c, int rank, int nranks) {
  const NumberType& type = type_of(c.type);
  const auto me = static_cast<size_t>(rank);
  std::vector<char> bytes;
  const auto take = [&](int from, size_t first) {
    tile(
        type, first, c.count, [&](size_t i) { return moved_element(type, from, c.salt, i); },
        bytes);
  };
  if (result_count(c, rank, nranks) == 0) return bytes;
  switch (c.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kReduceScatter:
      tile(
          type, c.operation == Operation::kReduceScatter ? me * c.count : 0, c.count,
          [&](size_t i) { return reduce_column(type, c.reduction, column_at(c, nranks, i)); },
          bytes);
      break;
    case Operation::kBroadcast:
    case Operation::kBcast:
      take(c.root, 0);
      break;
    case Operation::kScatter:
      take(c.root, me * c.count);
      break;
    case Operation::kSendRecv:
      take((rank + nranks - 1) % nranks, 0);
      break;
    case Operation::kAllGather:
    case Operation::kGather:
      for (int r = 0; r < nranks; ++r) take(r, 0);
      break;
    case Operation::kAlltoAll:
      for (int r = 0; r < nranks; ++r) take(r, me * c.count);
      break;
  }
  return bytes;
}

}  // namespace weft::test
