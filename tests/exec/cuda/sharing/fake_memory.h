// A memory driver without a GPU. Every rank has its own address space, and all share one device.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/exec/cuda/memory_driver.h"

namespace weft::test {

enum class FakeKind { kIpc, kDescriptor, kPrivate };

// The memory itself. Thread-safe.
class FakeDevice {
 public:
  struct Physical {
    uint64_t stamp = 0;  // what it contains
    bool owned = true;   // not freed by its owner
    int mappings = 0;    // of other ranks
    int readers = 0;     // kernels at work on it
    FakeKind kind = FakeKind::kIpc;
    bool lent = false;
  };
  std::mutex mutex;
  std::map<uint64_t, Physical> all;  // by id, from 1 on
  uint64_t next = 1;
  std::string wrong;  // what a driver or a kernel did that would have been an error

  size_t alive();  // owned or mapped
};

class FakeMemory : public cuda::MemoryDriver {
 public:
  FakeMemory(FakeDevice& device, size_t table_size) : device_(device), table_(table_size, 0) {}
  // Reports what is still mapped or reserved.
  ~FakeMemory() override;

  // The rank's own memory.
  void allocate(uint64_t base, uint64_t size, FakeKind kind);
  void free(uint64_t base);
  void write(uint64_t base, uint64_t stamp);
  // A kernel of this rank starts or ends to use what it finds at a place. Returns the contents.
  uint64_t start_reading(size_t number, uint64_t offset);
  void end_reading(size_t number, uint64_t offset);
  uint64_t queries() const { return queries_; }
  uint64_t shares() const { return shares_; }
  uint64_t maps() const { return maps_; }

  std::atomic<bool> stopped = false, refuses = false, ended = true, quiet = true;
  std::atomic<int> marks = 0, most_lent = 1 << 20;
  std::function<void()> during_share;  // what other threads do then; set before use
  std::set<uint64_t> ours;             // addresses of ncclMemAlloc; set before use

  void enter() override { background_ = std::this_thread::get_id(); }
  bool is_stopped() override { return stopped; }
  uint64_t id(uint64_t address) override;
  bool find(uint64_t address, cuda::Allocation& found) override;
  bool is_ours(uint64_t address) override { return ours.count(address) != 0; }
  cuda::Shared share(const cuda::Allocation& allocation, bool watched, cuda::BoardEntry& entry,
                     std::string& why) override;
  void take_back(uint64_t descriptor) override;
  Fd dma_buf(const cuda::Allocation&) override { return {}; }
  void mark(cudaStream_t) override { marks++; }
  bool reached() override { return ended; }
  bool is_quiet() override { return quiet; }
  uint64_t reserve(uint64_t bytes) override;
  void unreserve(uint64_t base, uint64_t bytes) override;
  uint64_t map(int peer, const cuda::BoardEntry& entry, uint64_t at, std::string& why) override;
  void unmap(const cuda::BoardEntry& entry, uint64_t at) override;
  void set_table(size_t index, uint64_t address) override { changes_.emplace_back(index, address); }
  void flush_table() override;
  void when_quiet(std::function<void()> free) override { free(); }

 private:
  struct Range {
    uint64_t size = 0, id = 0;
  };
  using Space = std::map<uint64_t, Range>;  // by base
  static const Range* at(const Space& space, uint64_t address);
  void check_thread();
  FakeDevice::Physical* read(size_t number, uint64_t offset);

  FakeDevice& device_;  // its mutex also protects what follows
  Space own_, imported_;
  std::set<uint64_t> reserved_;
  std::vector<uint64_t> table_;
  std::vector<std::pair<size_t, uint64_t>> changes_;
  uint64_t next_address_ = uint64_t{1} << 46;
  std::atomic<uint64_t> queries_ = 0, shares_ = 0, maps_ = 0;
  std::atomic<std::thread::id> background_;
};

}  // namespace weft::test
