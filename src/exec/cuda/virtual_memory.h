// Memory made by cuMemCreate and cuMemMap (PyTorch's expandable segments): other processes reach it
// through a descriptor per allocation. An address range may be backed by many allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/transport/descriptors.h"

namespace weft::cuda {

// Whole allocations, one behind the other.
struct MemoryRange {
  uint64_t base = 0, size = 0;
  std::vector<uint64_t> pieces;  // sizes
};

// The allocations that hold [pointer, pointer + size); false when some of it is none.
bool find_range(const void* pointer, size_t size, MemoryRange& range);

// A descriptor for every allocation of the range; empty and `why` when there are none.
std::vector<Descriptors::Lent> export_range(const MemoryRange& range, std::string& why);

// Another process's range, mapped here in one piece.
class ImportedRange {
  struct Private {};

 public:
  explicit ImportedRange(Private) {}
  // nullptr and `why` when that is not possible. The device that will use it must be current.
  static std::unique_ptr<ImportedRange> map(const std::vector<Descriptors::Lent>& pieces,
                                            int device, std::string& why);
  ~ImportedRange();
  ImportedRange(const ImportedRange&) = delete;
  ImportedRange& operator=(const ImportedRange&) = delete;

  uint64_t base() const { return base_; }

 private:
  std::string add(const Descriptors::Lent& piece);

  uint64_t base_ = 0, reserved_ = 0;
  std::vector<uint64_t> mapped_;  // sizes, from the base on
};

}  // namespace weft::cuda
