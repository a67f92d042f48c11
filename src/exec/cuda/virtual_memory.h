// Memory from cuMemCreate and cuMemMap (PyTorch's expandable segments). Other processes access it
// through one descriptor per allocation. Many allocations may back an address range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/transport/descriptors.h"

namespace weft::cuda {

// Whole allocations, contiguous in the address space.
struct MemoryRange {
  uint64_t base = 0, size = 0;
  std::vector<uint64_t> pieces;  // sizes
};

// Finds the allocations that hold [pointer, pointer + size). False if a part of it is not
// allocated.
bool find_range(const void* pointer, size_t size, MemoryRange& range);

// A descriptor for every allocation of the range. Empty, with the reason in `why`, if there are
// none.
std::vector<Descriptors::Lent> export_range(const MemoryRange& range, std::string& why);

// Another process's range, mapped contiguously.
class ImportedRange {
  struct Private {};

 public:
  explicit ImportedRange(Private) {}
  // nullptr, with the reason in `why`, if mapping fails. The device that will use the range must be
  // current.
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
