// See regular_file.h.
#include "src/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/error.h"

namespace weft {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISDIR(mode) ? "a folder" : "something else";
}

// Whether users other than root and this one may put files into the folder of this path.
bool is_in_shared_folder(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return false;
  const bool foreign = status.st_uid != 0 && status.st_uid != geteuid();
  return foreign || (status.st_mode & S_IWOTH) != 0;
}

// Does not wait for the writer of a FIFO.
Fd open_to_read(const std::string& path) {
  const int links = is_in_shared_folder(path) ? O_NOFOLLOW : 0;
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | links));
  if (!fd && errno == ELOOP && links != 0)
    fail(ncclSystemError, "{}: is a link in a folder where others may write", path);
  return fd;
}

std::string read_all(const Fd& fd, const std::string& path, size_t most_bytes) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) fail_errno(errno, "{}: cannot be read", path);
  if (!S_ISREG(status.st_mode))
    fail(ncclSystemError, "{}: is {}, not a regular file", path, kind_of(status.st_mode));
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, "{}: cannot be read", path);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    // Not only its size at first: it may grow, and files of /proc have none.
    if (text.size() > most_bytes || status.st_size > static_cast<off_t>(most_bytes))
      fail(ncclSystemError, "{}: has more than {} bytes", path, most_bytes);
  }
}

// A hard link leads elsewhere too.
void refuse_links(const struct stat& status, const std::string& path) {
  if (S_ISREG(status.st_mode) && status.st_nlink > 1 && is_in_shared_folder(path))
    fail(ncclSystemError, "{}: is a link in a folder where others may write", path);
}

bool is_fifo(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

}  // namespace

std::string read_regular_file(const std::string& path, size_t most_bytes) {
  const Fd fd = open_to_read(path);
  if (!fd) fail_errno(errno, "{}: cannot be opened", path);
  return read_all(fd, path, most_bytes);
}

std::optional<std::string> read_if_readable(const std::string& path, size_t most_bytes) {
  const Fd fd = open_to_read(path);
  if (!fd) return std::nullopt;
  return read_all(fd, path, most_bytes);
}

Fd open_to_write(const std::string& path, Content content) {
  const bool keeps = content == Content::kKept;
  const int links = is_in_shared_folder(path) ? O_NOFOLLOW : 0;
  const int access = keeps ? O_RDWR : O_WRONLY;
  // O_TRUNC would empty a file before it is known which one it is.
  Fd fd(::open(path.c_str(), access | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | links,
               keeps ? 0644 : 0666));
  const int error = errno;
  if (!fd && error == ELOOP && links != 0)
    fail(ncclSystemError, "{}: is a link in a folder where others may write", path);
  if (!fd && error == ENXIO && is_fifo(path))
    fail(ncclSystemError, "{}: is a FIFO that nobody reads", path);
  if (!fd) fail_errno(error, "{}: cannot be opened", path);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) fail_errno(errno, "{}: cannot be written", path);
  refuse_links(status, path);
  if (keeps && !S_ISREG(status.st_mode))
    fail(ncclSystemError, "{}: is {}, not a regular file", path, kind_of(status.st_mode));
  if (!keeps && S_ISREG(status.st_mode) && ftruncate(fd.get(), 0) != 0)
    fail_errno(errno, "{}: cannot be written", path);
  // Only the opening must not wait: lines to a slow reader or terminal must not be lost.
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0)
    fail_errno(errno, "{}: cannot be written", path);
  return fd;
}

void write_whole_file(const std::string& path, const std::string& text) {
  const Fd fd = open_to_write(path);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_errno(errno, "{}: cannot be written", path);
    done += static_cast<size_t>(written);
  }
}

}  // namespace weft
