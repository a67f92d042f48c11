// Thread blocks of kernels that run on the host. All threads of a block share one thread of the
// host and take turns where they wait: hundreds of threads that look at words would keep few cores
// busy with changing threads. TSan, which looks for races, gets a thread for each.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/handles.h"
#include "tests/support/sampling.h"

namespace weft::cuda {

inline constexpr uint32_t kWarp = 4;
class EmulatedBlock;

// Where `threads` threads of a block wait for each other.
class Meeting {
 public:
  explicit Meeting(uint32_t threads) : threads_(threads), barrier_(threads) {}
  inline void arrive_and_wait();

 private:
  const uint32_t threads_;
  uint32_t arrived_ = 0, number_ = 0;  // of this meeting
  std::barrier<> barrier_;             // under sanitizers, in place of the numbers
};

struct EmulatedWarp {
  explicit EmulatedWarp(uint32_t threads) : meeting(threads) {}
  Meeting meeting;
  // Two of each, in turn: a thread may be in the next exchange while others read the last one.
  std::atomic<uint32_t> ballots[2] = {};
  std::atomic<uint32_t> said[2][kWarp] = {};
};

// What a thread knows of itself.
struct EmulatedThread {
  EmulatedBlock* block = nullptr;
  uint32_t number = 0, meetings = 0, ballots = 0, gets = 0;
  inline EmulatedWarp& warp() const;
};
inline thread_local EmulatedThread emulated;

class EmulatedBlock {
 public:
  explicit EmulatedBlock(uint32_t threads, uint32_t place = 0)
      : size(threads), index(place), meeting(threads), turns_(threads) {
    for (uint32_t t = 0; t < threads; t += kWarp)
      warps.emplace_back(threads - t < kWarp ? threads - t : kWarp);
  }

  // Returns when all threads have run `kernel` with their numbers.
  void run(std::function<void(uint32_t)> kernel) {
    kernel_ = std::move(kernel);
    if (test::kSanitized) {
      std::vector<std::thread> threads;
      for (uint32_t t = 0; t < size; t++)
        threads.emplace_back([this, t] {
          emulated = {this, t};
          kernel_(t);
        });
      for (std::thread& thread : threads) thread.join();
      return;
    }
    constexpr size_t kStack = size_t{256} << 10;
    left_ = size;
    for (uint32_t t = 0; t < size; t++) {
      Turn& turn = turns_[t];
      turn.stack = Mapping::anonymous(kStack);
      turn.thread = {this, t};
      turn.runs = true;
      getcontext(&turn.context);
      turn.context.uc_stack.ss_sp = turn.stack.data();
      turn.context.uc_stack.ss_size = kStack;
      makecontext(
          &turn.context, [] { emulated.block->play(); }, 0);
    }
    current_ = 0;
    emulated = turns_[0].thread;
    swapcontext(&caller_, &turns_[0].context);
  }

  // Lets others go on, of this block and others. The calling thread has no turn before `number` is
  // another one than `seen`.
  void give_way(const uint32_t* number = nullptr, uint32_t seen = 0) {
    if (test::kSanitized) return std::this_thread::yield();
    Turn& mine = turns_[current_];
    mine.number = number;
    mine.seen = seen;
    uint32_t next = current_;
    do {
      if (++next < size) continue;
      next = 0;
      std::this_thread::yield();
    } while (!turns_[next].is_due());
    if (next == current_) return;
    mine.thread = emulated;
    current_ = next;
    emulated = turns_[next].thread;
    swapcontext(&mine.context, &turns_[next].context);
  }

  const uint32_t size, index;
  uint32_t blocks = 1;  // of the kernel
  Meeting meeting;
  std::deque<EmulatedWarp> warps;  // the last one may have fewer threads
  std::atomic<bool> any[2] = {};   // for two barriers in turn

 private:
  struct Turn {
    ucontext_t context;
    Mapping stack;
    EmulatedThread thread;  // while another one has its turn
    const uint32_t* number = nullptr;
    uint32_t seen = 0;
    bool runs = false;
    bool is_due() const { return runs && (number == nullptr || *number != seen); }
  };

  void play() {
    kernel_(emulated.number);
    turns_[current_].runs = false;
    if (--left_ == 0) setcontext(&caller_);
    give_way();  // for good
  }

  std::function<void(uint32_t)> kernel_;
  std::vector<Turn> turns_;
  uint32_t current_ = 0, left_ = 0;
  ucontext_t caller_;
};

inline EmulatedWarp& EmulatedThread::warp() const { return block->warps[number / kWarp]; }

// Kernels of one stream, of several blocks. Each block has a thread of the host.
class EmulatedGrid {
 public:
  EmulatedGrid(uint32_t blocks, uint32_t threads) : blocks_(blocks), threads_(threads) {}

  // All threads of the first `blocks(k)` blocks run `kernel(k)`. When they have, one runs `then(k)`
  // before the next kernel begins.
  template <typename Blocks, typename Kernel, typename Then>
  void run(size_t kernels, Blocks blocks, Kernel kernel, Then then) {
    std::barrier<> all(blocks_);
    const auto play = [&](uint32_t number) {
      EmulatedBlock block(threads_, number);
      block.run([&](uint32_t t) {
        for (size_t k = 0; k < kernels; k++) {
          const uint32_t taking_part = blocks(k);
          if (t == 0) block.blocks = taking_part;
          block.meeting.arrive_and_wait();
          if (number < taking_part) kernel(k);
          block.meeting.arrive_and_wait();
          if (t == 0) {
            all.arrive_and_wait();
            if (number == 0) then(k);
            all.arrive_and_wait();
          }
          block.meeting.arrive_and_wait();
        }
      });
    };
    std::vector<std::jthread> others;
    for (uint32_t b = 1; b < blocks_; b++) others.emplace_back(play, b);
    play(0);
  }

 private:
  const uint32_t blocks_, threads_;
};

inline void Meeting::arrive_and_wait() {
  if (test::kSanitized) return barrier_.arrive_and_wait();
  const uint32_t mine = number_;
  if (++arrived_ == threads_) {
    arrived_ = 0;
    number_++;
  } else {
    emulated.block->give_way(&number_, mine);
  }
}

}  // namespace weft::cuda
