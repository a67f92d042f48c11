// See cached_file.h.
#include "src/planner/cached_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/handles.h"
#include "src/base/regular_file.h"

namespace weft {

std::string read_cached(const std::string& path) {
  constexpr size_t kMostBytes = 256u << 20;
  return read_regular_file(path, kMostBytes);
}

void write_cached(const std::string& path, const std::string& text) {
  static std::atomic<unsigned> count{0};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    fail_errno(error.value(), "{} cannot be made",
               std::filesystem::path(path).parent_path().string());
  const std::string beside = fmt::format("{}.{}.{}", path, getpid(), count.fetch_add(1));
  int trouble = 0;
  {
    const Fd file(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file) fail_errno(errno, "{} cannot be written", beside);
    for (size_t at = 0; at < text.size() && trouble == 0;) {
      const ssize_t written = write(file.get(), text.data() + at, text.size() - at);
      if (written > 0) {
        at += static_cast<size_t>(written);
      } else if (errno != EINTR) {
        trouble = errno == 0 ? EIO : errno;
      }
    }
  }
  if (trouble == 0 && rename(beside.c_str(), path.c_str()) != 0) trouble = errno;
  if (trouble != 0) {
    unlink(beside.c_str());
    fail_errno(trouble, "{} cannot be written", path);
  }
}

}  // namespace weft
