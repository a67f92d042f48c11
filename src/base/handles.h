// Owning handles for kernel objects: file descriptors and mappings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "src/base/fork.h"

namespace weft {

// Forked children close it.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {
    if (fd >= 0) own_descriptor(fd);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    if (fd_ >= 0) disown_descriptor(fd_);
    return std::exchange(fd_, -1);
  }
  void reset() {
    // In a forked child the number may belong to somebody else by now.
    if (fd_ >= 0 && disown_descriptor(fd_)) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, size_t size) : base_(base), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping() {
    if (base_ != nullptr) munmap(base_, size_);
  }

  // Anonymous memory of this process; pages cost nothing until touched.
  static Mapping anonymous(size_t size);
  // A shared view of a memfd (or any file) of this size.
  static Mapping shared(int fd, size_t size);

  std::byte* data() const { return static_cast<std::byte*>(base_); }
  size_t size() const { return size_; }

 private:
  void* base_ = nullptr;
  size_t size_ = 0;
};

// An unnamed file in memory. Its size is sealed: whoever maps it cannot lose pages. The name shows
// up only in /proc.
Fd make_memfd(const char* name, size_t size);
// Throws Error(ncclRemoteError) unless a descriptor from a peer is such a file of at least `size`.
void require_sealed_memfd(int fd, size_t size);

}  // namespace weft
