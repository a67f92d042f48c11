// Segments of shared memory: finding, sharing, freeing and reusing them.
#include "src/transport/segments.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "src/base/error.h"

namespace weft::test {
namespace {

std::byte* at(void* base, size_t offset) { return static_cast<std::byte*>(base) + offset; }

TEST(Segments, AreFoundFromAnyAddressInside) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(10000);
  const SegmentRef first = segments.find(memory, 10000);
  EXPECT_NE(first.id, 0u);
  EXPECT_EQ(first.offset, 0u);
  const SegmentRef inside = segments.find(at(memory, 4097), 5903);
  EXPECT_EQ(inside.id, first.id);
  EXPECT_EQ(inside.offset, 4097u);
  std::memset(memory, 7, 10000);
  EXPECT_TRUE(segments.release(memory));
}

TEST(Segments, CannotChangeTheirSizeUnderAPeer) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(8192);
  EXPECT_TRUE(segments.share(segments.find(memory, 1).id, [](int fd, size_t size) {
    EXPECT_NO_THROW(require_sealed_memfd(fd, size));
    EXPECT_THROW(require_sealed_memfd(fd, size + 1), Error);
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_NE(ftruncate(fd, 1 << 20), 0);
  }));
  EXPECT_TRUE(segments.release(memory));
  const Fd open_ended(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_ended.get(), 8192), 0);
  EXPECT_THROW(require_sealed_memfd(open_ended.get(), 8192), Error);
}

TEST(Segments, AreNotFoundFromOutsideOrAcrossTheirEnd) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(8192);
  int local = 0;
  EXPECT_EQ(segments.find(&local, sizeof local).id, 0u);
  EXPECT_EQ(segments.find(nullptr, 1).id, 0u);
  EXPECT_EQ(segments.find(at(memory, 8000), 193).id, 0u);
  EXPECT_EQ(segments.find(memory, 8193).id, 0u);
  EXPECT_EQ(segments.find(memory, ~size_t{0}).id, 0u);
  EXPECT_NE(segments.find(at(memory, 8000), 192).id, 0u);
  EXPECT_TRUE(segments.release(memory));
}

TEST(Segments, AreGoneAfterReleaseAndTheirPlaceIsReusedUnderANewNumber) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(4096);
  const uint64_t id = segments.find(memory, 1).id;
  EXPECT_TRUE(segments.release(memory));
  EXPECT_EQ(segments.find(memory, 1).id, 0u);
  EXPECT_FALSE(segments.release(memory));
  EXPECT_FALSE(segments.share(id, [](int, size_t) {}));
  for (int i = 0; i < 10000; i++) {  // more than the table holds
    void* again = segments.allocate(1);
    EXPECT_NE(segments.find(again, 1).id, id);
    ASSERT_TRUE(segments.release(again));
  }
}

TEST(Segments, AreOnlyReleasedByWhatAllocateGave) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(8192);
  int local = 0;
  EXPECT_FALSE(segments.release(nullptr));
  EXPECT_FALSE(segments.release(&local));
  EXPECT_FALSE(segments.release(at(memory, 64)));
  EXPECT_TRUE(segments.release(memory));
}

TEST(Segments, AreTheSameMemoryThroughTheirDescriptor) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(5000);
  std::memcpy(memory, "shared", 7);
  std::string seen;
  EXPECT_TRUE(segments.share(segments.find(memory, 1).id, [&](int fd, size_t size) {
    EXPECT_EQ(size, 8192u);  // whole pages
    const Mapping view = Mapping::shared(fd, size);
    seen = reinterpret_cast<const char*>(view.data());
  }));
  EXPECT_EQ(seen, "shared");
  EXPECT_TRUE(segments.release(memory));
}

TEST(Segments, AreFoundWhileOthersComeAndGo) {
  Segments& segments = Segments::instance();
  void* memory = segments.allocate(4096);
  const uint64_t id = segments.find(memory, 4096).id;
  std::atomic<bool> stop{false};
  std::thread churn([&] {
    while (!stop) {
      void* a = segments.allocate(4096);
      void* b = segments.allocate(100);
      segments.release(a);
      segments.release(b);
    }
  });
  for (int i = 0; i < 20000; i++) ASSERT_EQ(segments.find(memory, 4096).id, id);
  stop = true;
  churn.join();
  EXPECT_TRUE(segments.release(memory));
}

}  // namespace
}  // namespace weft::test
