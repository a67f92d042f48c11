// See registrations.h.
#include "src/exec/cuda/registrations.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "src/base/log.h"

namespace weft::cuda {
namespace {

// How often the thread looks while something could be freed or withdrawn. While somebody waits for
// an answer it starts with the shorter time and doubles it.
constexpr std::chrono::milliseconds kSoon{1}, kSweep{50};

std::vector<Board> boards_in(std::span<std::byte* const> memory) {
  std::vector<Board> boards;
  for (std::byte* board : memory) boards.emplace_back(board, static_cast<int>(memory.size()));
  return boards;
}

SharingOptions settled(SharingOptions options, std::span<const uint64_t> processes) {
  std::vector<uint64_t> sorted(processes.begin(), processes.end());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) options.automatic = false;
  return options;
}

}  // namespace

Registrations::Registrations(int rank, std::span<std::byte* const> boards,
                             std::span<const uint64_t> processes, SharingOptions options,
                             std::shared_ptr<MemoryDriver> driver)
    : rank_(rank),
      boards_(boards_in(boards)),
      heard_(boards.size(), 0),
      driver_(std::move(driver)),
      own_(rank, static_cast<int>(boards.size()), boards_[static_cast<size_t>(rank)],
           settled(options, processes), driver_, [this] { wake(); }),
      imports_(rank, boards_, processes, options, driver_) {}

Registrations::~Registrations() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
  // Peers may keep their communicators for long. Memory that is freed meanwhile should be free.
  if (!driver_->is_stopped() && driver_->is_quiet()) own_.withdraw_all();
}

void Registrations::wake() {
  {
    std::lock_guard lock(mutex_);
    news_ = true;
    if (!thread_.joinable() && !failed_) start();
  }
  woken_.notify_one();
}

// A call must not fail because there is no room for a thread: its peers would wait.
void Registrations::start() {
  try {
    thread_ = std::thread([this] { work(); });
    pthread_setname_np(thread_.native_handle(), "weft-sharer");
  } catch (const std::system_error& error) {
    failed_ = true;
    WEFT_WARN("rank {} maps no memory of its peers, no thread could be started: {}", rank_,
              error.what());
  }
}

void Registrations::add(const void* pointer, size_t size) {
  own_.add(pointer, size);
  wake();
}

void Registrations::begin_launch(bool captured) {
  captured_ = captured;
  looked_ = false;
}

uint64_t Registrations::place(const void* pointer, size_t size, int peer) {
  if (!looked_) {
    if (look()) wake();
    own_.begin_launch();
    looked_ = true;
  }
  return own_.place(pointer, size, peer, captured_);
}

void Registrations::end_launch(cudaStream_t stream) {
  if (!captured_) own_.launched(stream);
}

bool Registrations::look() {
  bool news = false;
  for (size_t p = 0; p < boards_.size(); p++) {
    if (static_cast<int>(p) == rank_) continue;
    const uint64_t version = boards_[p].version();
    news = news || version != heard_[p];
    heard_[p] = version;
  }
  return news;
}

// The thread. If CUDA fails, nothing more is shared, and calls report the error.
void Registrations::work() {
  try {
    driver_->enter();
    std::unique_lock lock(mutex_);
    for (auto delay = kSoon; !stopping_;) {
      if (std::exchange(news_, false)) delay = kSoon;
      lock.unlock();
      const bool stopped = driver_->is_stopped();
      bool soon = false;
      if (!stopped) {
        soon = imports_.catch_up();
        soon = own_.tend() || soon;
      }
      const bool idle = stopped || (!soon && imports_.empty() && own_.empty());
      delay = soon ? std::min(delay * 2, kSweep) : kSweep;
      lock.lock();
      const auto woken = [&] { return news_ || stopping_; };
      if (idle) {
        woken_.wait(lock, woken);
      } else {
        woken_.wait_for(lock, delay, woken);
      }
    }
  } catch (const std::exception& error) {
    WEFT_WARN("rank {} shares no more memory with its peers: {}", rank_, error.what());
  }
}

}  // namespace weft::cuda
