// Mappings and memfds. Errors say how much memory was requested.
#include "src/base/handles.h"

#include <cerrno>

#include "src/base/error.h"

namespace weft {

Mapping Mapping::anonymous(size_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) fail_errno(errno, "cannot map {} bytes of memory", size);
  return {base, size};
}

Mapping Mapping::shared(int fd, size_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) fail_errno(errno, "cannot map {} bytes of shared memory", size);
  return {base, size};
}

Fd make_memfd(const char* name, size_t size) {
  Fd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd) fail_errno(errno, "memfd_create for {} bytes failed", size);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
    fail_errno(errno, "cannot size a memfd to {} bytes", size);
  return fd;
}

}  // namespace weft
