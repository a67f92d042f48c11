// Mappings and memfds. Errors say how much memory was requested.
#include "src/base/handles.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

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
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail_errno(errno, "memfd_create for {} bytes failed", size);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
    fail_errno(errno, "cannot size a memfd to {} bytes", size);
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) fail_errno(errno, "cannot seal a memfd");
  return fd;
}

void require_sealed_memfd(int fd, size_t size) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || fstat(fd, &status) != 0 ||
      status.st_size < 0 || static_cast<size_t>(status.st_size) < size)
    fail(ncclRemoteError, "a peer offers {} bytes of memory that may shrink or are not there",
         size);
}

}  // namespace weft
