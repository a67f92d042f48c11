// Builds the lists of cases.
#include "tests/support/case_list.h"

#include <algorithm>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;

std::vector<bool> placements_of(Operation operation) {
  if (!can_be_in_place(operation)) return {false};
  return {false, true};
}

// Adds cases. Each has a new salt and the next root.
class CaseList {
 public:
  explicit CaseList(int nranks) : nranks_(nranks) {}

  Case& add(Operation operation, ncclDataType_t type, size_t count) {
    Case c;
    c.operation = operation;
    c.type = type;
    c.count = count;
    c.salt = mix(cases_.size() + 1);
    c.root = static_cast<int>(cases_.size() % static_cast<size_t>(nranks_));
    cases_.push_back(c);
    return cases_.back();
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  int nranks_;
  std::vector<Case> cases_;
};

size_t random_count(Random& random, size_t most) {
  size_t count = 0;
  switch (random.below(4)) {
    case 0:
      count = random.below(20);
      break;
    case 1:
      count = random.below(5000);
      break;
    case 2:  // around a power of two
      count = (size_t{1} << random.below(20)) + random.below(3) - 1;
      break;
    default:
      count = random.below(300000);
  }
  return std::min(count, most);
}

}  // namespace

const std::vector<int>& rank_counts() {
  static const std::vector<int> counts = {1, 2, 3, 4, 5, 7, 8, 16};
  return counts;
}

std::vector<Case> core_cases(int nranks) {
  CaseList list(nranks);
  uint64_t serial = 0;
  const auto left_out = [&] { return kSanitized && serial++ % 3 != 0; };
  for (Operation operation : all_operations()) {
    for (const NumberType& type : all_types()) {
      for (Reduction reduction : all_reductions()) {
        if (!reduces(operation) && reduction != Reduction::kSum) continue;
        if (left_out()) continue;
        list.add(operation, type.id, 17).reduction = reduction;
      }
    }
    for (size_t count : {0, 1, 2, 3, 17, 1000, 1023, 65537}) {
      for (bool in_place : placements_of(operation)) {
        list.add(operation, ncclInt32, count).in_place = in_place;
      }
    }
    for (int root = 0; has_root(operation) && root < nranks; ++root) {
      for (bool in_place : placements_of(operation)) {
        Case& c = list.add(operation, ncclFloat32, 5);
        c.root = root;
        c.in_place = in_place;
      }
    }
    // Other memory, other alignment. One count is small, one is large enough to be split.
    for (Placement placement : {Placement::kMalloc, Placement::kNcclMemAlloc, Placement::kMixed}) {
      for (bool shifted : {false, true}) {
        for (size_t count : {9, 20011}) {
          Case& c = list.add(operation, ncclFloat16, count);
          c.placement = placement;
          c.shifted = shifted;
        }
      }
    }
  }
  return list.take();
}

std::vector<Case> brief_cases(int nranks) {
  CaseList list(nranks);
  uint64_t serial = 0;
  for (Operation operation : all_operations()) {
    for (size_t count : {0, 1, 1023, 40961}) {
      for (bool in_place : placements_of(operation)) {
        const NumberType& type = all_types()[serial % all_types().size()];
        Case& c = list.add(operation, type.id, count);
        c.reduction = all_reductions()[serial % all_reductions().size()];
        c.in_place = in_place;
        c.placement = static_cast<Placement>(serial % 3);
        c.shifted = serial % 4 == 3;
        ++serial;
      }
    }
  }
  return list.take();
}

std::vector<Case> random_cases(int nranks, int samples, uint64_t seed) {
  Random random(mix(seed, static_cast<uint64_t>(nranks)));
  std::vector<Case> cases;
  for (int i = 0; i < samples; ++i) {
    Case c;
    c.operation = random.pick(all_operations());
    c.type = random.pick(all_types()).id;
    c.reduction = random.pick(all_reductions());
    c.root = static_cast<int>(random.below(static_cast<uint64_t>(nranks)));
    c.count =
        random_count(random, kMostBytes / static_cast<size_t>(nranks) / type_of(c.type).bytes);
    c.in_place = can_be_in_place(c.operation) && random.below(2) == 1;
    c.placement = static_cast<Placement>(random.below(3));
    c.shifted = random.below(4) == 0;
    c.salt = random.next();
    if (c.operation != Operation::kSendRecv && c.salt % 4 == 0)
      c.parts = 1 + static_cast<int>(mix(c.salt) % 64);
    cases.push_back(c);
  }
  return cases;
}

}  // namespace weft::test
