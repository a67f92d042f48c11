// See block_registry.h.
#include "src/exec/cuda/block_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "src/base/error.h"

namespace weft::cuda {
namespace {

constexpr uint32_t kMagic = 0x57424c4b;
constexpr int kVersion = 1;
constexpr auto kPatience = std::chrono::seconds(10);

// A lock on one byte: byte 0 is for whoever changes the table, byte i + 1 for the owner of entry i.
struct flock byte_lock(short type, int byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

int block_budget(int sms) { return std::max(0, sms - std::max(2, (sms * 3 + 99) / 100)); }

struct BlockRegistry::Table {
  uint32_t magic, version;
  struct Entry {
    uint32_t used;
    int32_t blocks;
    int64_t pid;  // for people
  };
  std::array<Entry, kEntries> entries;
};

// Keeps other threads and processes out of the table.
class BlockRegistry::Guard {
 public:
  explicit Guard(BlockRegistry& registry) : lock_(registry.mutex_), fd_(registry.fd_.get()) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    struct flock lock = byte_lock(F_WRLCK, 0);
    while (fcntl(fd_, F_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR)
        fail_errno(errno, "cannot lock {}", registry.path_);
      if (std::chrono::steady_clock::now() > until) {
        struct flock holder = byte_lock(F_WRLCK, 0);
        fcntl(fd_, F_GETLK, &holder);
        fail(ncclSystemError, "{} has been locked for {} s by process {}", registry.path_,
             kPatience.count(), holder.l_pid);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  ~Guard() {
    struct flock lock = byte_lock(F_UNLCK, 0);
    fcntl(fd_, F_SETLK, &lock);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  const int fd_;
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
      fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (!fd_) fail_errno(errno, "cannot open {}, where processes share a GPU's blocks", path_);
  fchmod(fd_.get(), 0666);  // for other users, whatever the umask; fails where it is another's file
  if (ftruncate(fd_.get(), sizeof(Table)) != 0) fail_errno(errno, "cannot size {}", path_);
  memory_ = Mapping::shared(fd_.get(), sizeof(Table));
  const Guard guard(*this);
  if (table().magic == 0) {
    table().magic = kMagic;
    table().version = kVersion;
  }
  if (table().magic != kMagic || table().version != kVersion)
    fail(ncclSystemError, "{} is of another version of Weft: end its programs, then remove it",
         path_);
  // An earlier process may have had this one's number. Nothing is reserved here yet.
  for (int i = 0; i < kEntries; i++) {
    struct flock lock = byte_lock(F_WRLCK, i + 1);
    if (table().entries[static_cast<size_t>(i)].used != 0 &&
        fcntl(fd_.get(), F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK)
      table().entries[static_cast<size_t>(i)] = {};
  }
}

BlockRegistry::Table& BlockRegistry::table() const {
  return *reinterpret_cast<Table*>(memory_.data());
}

// A process does not see its own locks; entries of its own are cleared when it gives them back.
bool BlockRegistry::is_alive(int entry) const {
  if (table().entries[static_cast<size_t>(entry)].pid == getpid()) return true;
  struct flock lock = byte_lock(F_WRLCK, entry + 1);
  return fcntl(fd_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int BlockRegistry::free_locked() {
  int used = 0;
  for (int i = 0; i < kEntries; i++) {
    Table::Entry& entry = table().entries[static_cast<size_t>(i)];
    if (entry.used == 0) continue;
    if (!is_alive(i)) {
      entry = {};
    } else {
      used += std::clamp(entry.blocks, 0, budget_);
    }
  }
  return std::max(0, budget_ - used);
}

int BlockRegistry::free() {
  const Guard guard(*this);
  return free_locked();
}

std::optional<BlockReservation> BlockRegistry::reserve(int blocks) {
  const Guard guard(*this);
  if (blocks <= 0 || blocks > free_locked()) return std::nullopt;
  for (int i = 0; i < kEntries; i++) {
    Table::Entry& entry = table().entries[static_cast<size_t>(i)];
    if (entry.used != 0) continue;
    struct flock lock = byte_lock(F_WRLCK, i + 1);
    if (fcntl(fd_.get(), F_SETLK, &lock) != 0) continue;
    entry = {1, blocks, getpid()};
    BlockReservation reservation;
    reservation.registry_ = shared_from_this();
    reservation.entry_ = i;
    reservation.blocks_ = blocks;
    return reservation;
  }
  return std::nullopt;
}

void BlockRegistry::give_back(int entry) noexcept {
  try {
    const Guard guard(*this);
    table().entries[static_cast<size_t>(entry)] = {};
    struct flock lock = byte_lock(F_UNLCK, entry + 1);
    fcntl(fd_.get(), F_SETLK, &lock);
  } catch (const Error&) {
    // Nobody else may enter the table either; the entry goes with this process.
  }
}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  registry_ = std::move(other.registry_);
  entry_ = std::exchange(other.entry_, -1);
  blocks_ = std::exchange(other.blocks_, 0);
  return *this;
}

void BlockReservation::release() noexcept {
  if (registry_ != nullptr && entry_ >= 0) registry_->give_back(entry_);
  registry_.reset();
  entry_ = -1;
  blocks_ = 0;
}

}  // namespace weft::cuda
