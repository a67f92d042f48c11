// See stage.h.
#include "tests/faults/stage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace weft::test {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool wait_until(const auto& true_now, double seconds) {
  const int64_t end = now_ns() + static_cast<int64_t>(seconds * 1e9);
  while (!true_now()) {
    if (now_ns() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

Stage::Stage(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0)
    throw std::system_error(errno, std::generic_category(), path);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  shared_ = static_cast<Shared*>(memory);  // zeros are a valid value of every member
}

Stage::~Stage() { munmap(shared_, sizeof(Shared)); }

void Stage::mark(Event event) { shared_->events[event] = now_ns(); }

bool Stage::has(Event event) const { return shared_->events[event] != 0; }

bool Stage::await(Event event, double seconds) const {
  return wait_until([&] { return has(event); }, seconds);
}

double Stage::since(Event event) const {
  const int64_t then = shared_->events[event];
  return then == 0 ? 0 : static_cast<double>(now_ns() - then) * 1e-9;
}

void Stage::meet(int meeting, int ranks) {
  std::atomic<int>& here = shared_->meetings[static_cast<size_t>(meeting)];
  here++;
  if (!wait_until([&] { return here >= ranks; }, 60))
    throw std::runtime_error("not all ranks came to meeting " + std::to_string(meeting));
}

void Stage::give(int number, const ncclUniqueId& id) {
  const auto at = static_cast<size_t>(number);
  shared_->ids[at] = id;
  shared_->given[at] = true;
}

ncclUniqueId Stage::take(int number) const {
  const auto at = static_cast<size_t>(number);
  if (!wait_until([&] { return shared_->given[at].load(); }, 60))
    throw std::runtime_error("nobody made unique id " + std::to_string(number));
  return shared_->ids[at];
}

ncclUniqueId Stage::id(int number, int rank) {
  ncclUniqueId id;
  if (rank == 0) {
    if (ncclGetUniqueId(&id) != ncclSuccess) throw std::runtime_error(ncclGetLastError(nullptr));
    give(number, id);
  }
  return take(number);
}

}  // namespace weft::test
