// See block_registry.h.
#include "src/exec/cuda/block_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft::cuda {
namespace {

constexpr std::chrono::seconds kPatience{2}, kResignation{10};

// Byte 0 is for whoever reserves, so that two do not take a part each and then both too little.
struct flock lock_of(short type, int first, int count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

// Where files of other users may not be opened with O_CREAT (protected_regular), an existing one is
// opened without.
Fd open_registry(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  for (;;) {
    Fd fd(open(path.c_str(), kFlags));
    if (fd || errno != ENOENT) return fd;
    fd = Fd(open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666));
    if (fd) fchmod(fd.get(), 0666);  // for other users, whatever the umask
    if (fd || errno != EEXIST) return fd;
  }
}

}  // namespace

int block_budget(int sms) { return std::max(0, sms - std::max(2, (sms * 3 + 99) / 100)); }

// Keeps other threads and processes from reserving. False: somebody keeps this process out. After
// the first thread has waited in vain others look only once, for a while.
class BlockRegistry::Guard {
 public:
  explicit Guard(BlockRegistry& registry) : lock_(registry.mutex_), fd_(registry.fd_.get()) {
    const auto begin = std::chrono::steady_clock::now();
    struct flock lock = lock_of(F_WRLCK, 0, 1);
    while (fcntl(fd_, F_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR)
        fail_errno(errno, "cannot lock {}", registry.path_);
      const auto now = std::chrono::steady_clock::now();
      if (now < registry.kept_out_until_) return;
      if (now > begin + kPatience) {
        struct flock holder = lock_of(F_WRLCK, 0, 1);
        fcntl(fd_, F_GETLK, &holder);
        WEFT_WARN("process {} has locked {} for {} s: no blocks of the GPU are reserved",
                  holder.l_pid, registry.path_, kPatience.count());
        registry.kept_out_until_ = now + kResignation;
        return;
      }
      lock_.unlock();  // who gives back need not wait
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      lock_.lock();
    }
    held_ = true;
  }
  ~Guard() {
    struct flock lock = lock_of(F_UNLCK, 0, 1);
    if (held_) fcntl(fd_, F_SETLK, &lock);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  explicit operator bool() const { return held_; }

 private:
  std::unique_lock<std::mutex> lock_;
  const int fd_;
  bool held_ = false;
};

std::shared_ptr<BlockRegistry> BlockRegistry::of(const std::string& id, int sms) {
  return at("/dev/shm/weft-blocks-" + id, sms);
}

std::shared_ptr<BlockRegistry> BlockRegistry::at(const std::string& path, int sms) {
  static std::mutex mutex;
  static auto& all =
      *std::make_unique<std::map<std::string, std::shared_ptr<BlockRegistry>>>().release();
  std::lock_guard lock(mutex);
  std::shared_ptr<BlockRegistry>& registry = all[path];
  if (registry == nullptr) registry = std::make_shared<BlockRegistry>(path, sms);
  return registry;
}

BlockRegistry::BlockRegistry(std::string path, int sms)
    : path_(std::move(path)),
      budget_(block_budget(sms)),
      fd_(open_registry(path_)),
      mine_(static_cast<size_t>(budget_) + 1) {
  if (!fd_) fail_errno(errno, "cannot open {}, where processes share a GPU's blocks", path_);
}

// A question about a range tells of one lock in it, so the parts beside that lock are asked for.
std::vector<int> BlockRegistry::free_bytes() {
  std::vector<bool> taken = mine_;
  std::vector<std::pair<int, int>> ranges = {{1, budget_ + 1}};
  while (!ranges.empty()) {
    const auto [first, end] = ranges.back();
    ranges.pop_back();
    if (first >= end) continue;
    struct flock lock = lock_of(F_WRLCK, first, end - first);
    if (fcntl(fd_.get(), F_GETLK, &lock) != 0)
      fail_errno(errno, "cannot ask for locks of {}", path_);
    if (lock.l_type == F_UNLCK) continue;
    const int from = static_cast<int>(std::max<off_t>(first, lock.l_start));
    const int to = lock.l_len == 0  // up to the end of every file
                       ? end
                       : static_cast<int>(std::min<off_t>(end, lock.l_start + lock.l_len));
    std::fill(taken.begin() + from, taken.begin() + to, true);
    ranges.insert(ranges.end(), {{first, from}, {to, end}});
  }
  std::vector<int> free;
  for (int byte = 1; byte <= budget_; byte++)
    if (!taken[static_cast<size_t>(byte)]) free.push_back(byte);
  return free;
}

int BlockRegistry::free() {
  const Guard guard(*this);
  return guard ? static_cast<int>(free_bytes().size()) : 0;
}

std::optional<BlockReservation> BlockRegistry::reserve(int blocks) {
  BlockReservation reservation;  // gives back what it has, after the guard
  const Guard guard(*this);
  if (!guard || blocks <= 0) return std::nullopt;
  std::vector<int> bytes;
  for (const int byte : free_bytes()) {
    if (static_cast<int>(bytes.size()) == blocks) break;
    struct flock lock = lock_of(F_WRLCK, byte, 1);
    if (fcntl(fd_.get(), F_SETLK, &lock) != 0) continue;  // of somebody who does not ask
    mine_[static_cast<size_t>(byte)] = true;
    bytes.push_back(byte);
  }
  reservation.registry_ = shared_from_this();
  reservation.bytes_ = std::move(bytes);
  if (reservation.blocks() < blocks) return std::nullopt;
  return reservation;
}

void BlockRegistry::give_back(const std::vector<int>& bytes) noexcept {
  const std::lock_guard lock(mutex_);
  for (const int byte : bytes) {
    struct flock unlock = lock_of(F_UNLCK, byte, 1);
    fcntl(fd_.get(), F_SETLK, &unlock);
    mine_[static_cast<size_t>(byte)] = false;
  }
}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  registry_ = std::move(other.registry_);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

void BlockReservation::release() noexcept {
  if (registry_ != nullptr) registry_->give_back(bytes_);
  registry_.reset();
  bytes_.clear();
}

}  // namespace weft::cuda
