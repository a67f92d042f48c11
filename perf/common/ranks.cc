// Makes communicators as nccl-tests does: one group call for all ranks of a thread.
#include "perf/common/ranks.h"

#include "perf/common/check.h"
#include "perf/common/collective.h"
#include "perf/common/device.h"
#include "perf/common/errors.h"

namespace weft::perf {
namespace {

// Calls call(rank) for every rank inside one group.
template <typename Function>
void grouped(std::span<LocalRank> ranks, const char* what, Function call) {
  Group group;
  for (LocalRank& rank : ranks) group.add(call(rank));
  check(group.finish(), what);
}

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Ranks::Ranks(Process& process, Team& team, const Options& options, size_t max_bytes)
    : options_(options),
      split_(Split::from_environment()),
      job_size_(process.size() * options.threads * options.ranks_per_thread),
      buffer_bytes_(round_up(max_bytes + kGuardBytes + static_cast<size_t>(options.unalign) * 8,
                             NCCL_WIN_REQUIRED_ALIGNMENT)),
      ranks_(static_cast<size_t>(options.threads * options.ranks_per_thread)) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    LocalRank& rank = ranks_[i];
    rank.global = process.rank() * static_cast<int>(ranks_.size()) + static_cast<int>(i);
    rank.group = split_.colour(rank.global);
    rank.rank = split_.rank_in_group(rank.global);
    rank.nranks = split_.group_size(rank.global, job_size_);
    device::select(rank.global);
    rank.stream = device::stream(static_cast<int>(i), options.stream_null != 0);
    for (Buffer* buffer : {&rank.send, &rank.recv}) {
      buffer->memory = static_cast<std::byte*>(device::allocate(buffer_bytes_));
      poison(buffer->memory, buffer_bytes_);  // also touches every page
    }
  }
  ncclUniqueId id{};
  if (process.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  process.broadcast(&id, sizeof id);
  if (options.parallel_init != 0) {
    team.run([&](int thread) { connect(of_thread(thread), id); });
  } else {
    connect(ranks_, id);
  }
  connected_ = true;
}

std::span<LocalRank> Ranks::of_thread(int thread) {
  const auto each = static_cast<size_t>(options_.ranks_per_thread);
  return std::span(ranks_).subspan(static_cast<size_t>(thread) * each, each);
}

void Ranks::connect(std::span<LocalRank> ranks, const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (options_.cta_policy >= 0) config.CTAPolicy = options_.cta_policy;
  grouped(ranks, "ncclCommInitRankConfig", [&](LocalRank& rank) {
    device::select(rank.global);
    return ncclCommInitRankConfig(&rank.world, job_size_, id, rank.global, &config);
  });
  if (split_.active()) {
    grouped(ranks, "ncclCommSplit", [&](LocalRank& rank) {
      return ncclCommSplit(rank.world, rank.group, rank.global, &rank.comm, &config);
    });
  } else {
    for (LocalRank& rank : ranks) rank.comm = rank.world;
  }
  register_buffers(ranks);
}

void Ranks::register_buffers(std::span<LocalRank> ranks) {
  for (Buffer LocalRank::*buffer : {&LocalRank::send, &LocalRank::recv}) {
    if (options_.local_register == 1) {
      for (LocalRank& rank : ranks) {
        Buffer& b = rank.*buffer;
        check(ncclCommRegister(rank.comm, b.memory, buffer_bytes_, &b.registration),
              "ncclCommRegister");
      }
    } else if (options_.local_register == 2) {
      grouped(ranks, "ncclCommWindowRegister", [&](LocalRank& rank) {
        Buffer& b = rank.*buffer;
        return ncclCommWindowRegister(rank.comm, b.memory, buffer_bytes_, &b.window,
                                      NCCL_WIN_COLL_SYMMETRIC);
      });
    }
  }
}

void Ranks::close() {
  connected_ = false;
  for (LocalRank& rank : ranks_) {
    for (Buffer* b : {&rank.send, &rank.recv}) {
      if (b->registration != nullptr) {
        check(ncclCommDeregister(rank.comm, b->registration), "ncclCommDeregister");
      }
      if (b->window != nullptr) {
        check(ncclCommWindowDeregister(rank.comm, b->window), "ncclCommWindowDeregister");
      }
    }
  }
  for (LocalRank& rank : ranks_) {
    if (rank.comm != rank.world) check(ncclCommDestroy(rank.comm), "ncclCommDestroy");
    check(ncclCommDestroy(rank.world), "ncclCommDestroy");
    device::release(rank.send.memory);
    device::release(rank.recv.memory);
  }
  ranks_.clear();
}

void Ranks::abort() {
  if (!connected_.exchange(false)) return;
  for (LocalRank& rank : ranks_) {
    ncclCommAbort(rank.comm);
    if (rank.comm != rank.world) ncclCommAbort(rank.world);
  }
}

}  // namespace weft::perf
