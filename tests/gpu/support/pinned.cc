// See pinned.h.
#include "tests/gpu/support/pinned.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "tests/gpu/support/gpu.h"

namespace weft::test {
namespace {

constexpr size_t kBlock = size_t{256} << 20, kPiece = size_t{4} << 20;

// Sizes are powers of two. A piece that is given back is kept for the next request of its size.
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }
  char* take(int size_class) {
    std::lock_guard lock(mutex_);
    auto& free = free_[size_class];
    if (!free.empty()) {
      char* const piece = free.back();
      free.pop_back();
      return piece;
    }
    const size_t bytes = size_t{1} << size_class;
    if (bytes > kBlock - used_) throw std::runtime_error("the pinned memory is used up");
    used_ += bytes;
    return block_ + used_ - bytes;
  }
  void give_back(char* piece, int size_class) {
    std::lock_guard lock(mutex_);
    free_[size_class].push_back(piece);
  }

 private:
  Pool() {
    void* block = nullptr;
    WEFT_CUDA(cudaHostAlloc(&block, kBlock, cudaHostAllocPortable));
    block_ = static_cast<char*>(block);
  }
  std::mutex mutex_;
  char* block_ = nullptr;
  size_t used_ = 0;
  std::map<int, std::vector<char*>> free_;
};

template <typename Copy>
void in_pieces(size_t bytes, Copy copy) {
  const Pinned bounce(std::min(bytes, kPiece));
  for (size_t at = 0; at < bytes; at += kPiece)
    copy(bounce.data(), at, std::min(kPiece, bytes - at));
}

}  // namespace

Pinned::Pinned(size_t bytes)
    : size_class_(std::countr_zero(std::bit_ceil(std::max<size_t>(bytes, 256)))) {
  data_ = Pool::instance().take(size_class_);
}
Pinned::~Pinned() { Pool::instance().give_back(data_, size_class_); }

void upload(void* device, const void* host, size_t bytes, cudaStream_t stream) {
  in_pieces(bytes, [&](char* bounce, size_t at, size_t size) {
    std::memcpy(bounce, static_cast<const char*>(host) + at, size);
    WEFT_CUDA(cudaMemcpyAsync(static_cast<char*>(device) + at, bounce, size, cudaMemcpyHostToDevice,
                              stream));
    WEFT_CUDA(cudaStreamSynchronize(stream));
  });
}

void download(void* host, const void* device, size_t bytes, cudaStream_t stream) {
  in_pieces(bytes, [&](char* bounce, size_t at, size_t size) {
    WEFT_CUDA(cudaMemcpyAsync(bounce, static_cast<const char*>(device) + at, size,
                              cudaMemcpyDeviceToHost, stream));
    WEFT_CUDA(cudaStreamSynchronize(stream));
    std::memcpy(static_cast<char*>(host) + at, bounce, size);
  });
}

}  // namespace weft::test
