// See lifecycle.h.
#include "src/comm/lifecycle.h"

#include <dlfcn.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "include/weft.h"
#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/base/trace.h"
#include "src/base/variables.h"
#include "src/comm/group.h"
#include "src/comm/status.h"
#include "src/comm/stream_spans.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

std::string label(const ncclComm& comm) {
  return comm.config.name.empty()
             ? fmt::format("rank {} of {}", comm.rank, comm.nranks)
             : fmt::format("rank {} of {} in '{}'", comm.rank, comm.nranks, comm.config.name);
}

// Logs once per process: the version, and the effect of each environment variable that is set.
void announce(int rank) {
  static std::once_flag once;
  std::call_once(once, [rank] {
    std::string banner = fmt::format("NCCL version {}.{}.{} as Weft " WEFT_VERSION_STRING,
                                     NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    Dl_info here{};
    if (dladdr(reinterpret_cast<const void*>(&announce), &here) != 0 && here.dli_fname != nullptr)
      banner += fmt::format(", {}", here.dli_fname);
    if (const int driver = cuda::driver_version(); driver > 0)
      banner += fmt::format(", CUDA driver {}.{}", driver / 1000, driver % 1000 / 10);
    if (!cuda::available()) banner += ", host mode";
    if (log::enabled(log::Level::kInfo, log::kAll))
      WEFT_INFO(kAll, "{}", banner);
    else if (rank == 0)
      log::write(log::Level::kVersion, log::kAll, __FILE__, __LINE__, banner);
    for (const std::string& note : environment_notes(Config::from_environment()))
      WEFT_INFO(kEnv, "{}", note);
  });
}

// Attaches the observers: the profiler plugin and the timeline.
void watch(ncclComm& comm) {
  const Config config = Config::from_environment();
  const uint64_t identity = comm.identity;
  ProfiledComm who{identity, comm.config.name, 1, comm.nranks, comm.rank};
  std::set<uint64_t> hosts;
  for (int r = 0; r < comm.nranks; r++) hosts.insert(comm.impl->mesh().info(r).host);
  who.nodes = static_cast<int>(hosts.size());
  comm.profiler = Profiler::open(config, who);
  comm.impl->context().track =
      trace::Track(config.trace, label(comm), identity, identity, comm.rank);
  const auto links = comm.impl->mesh().network_links();
  if (comm.profiler != nullptr) {
    comm.profiler->follow(links);
    comm.impl->context().observer = comm.profiler.get();
  }
  const int64_t track = comm.impl->context().track.id();
  if (track < 0) return;
  for (const NetworkLinks::Link& link : links)
    link.stream->proxy().observe(
        *link.stream,
        std::make_unique<StreamSpans>(track, link.route.peer, link.route.channel, link.sends));
}

// Makes the communicator and puts it into its handle. Runs on the caller's thread or on a thread of
// its own.
void bring_up(ncclComm& comm, const UniqueId& id) {
  try {
    serve_status();
    comm.identity = siphash(id.secret, "observed", 8);
    CommunicatorOptions options;
    options.id = id;
    options.rank = comm.rank;
    options.nranks = comm.nranks;
    options.label = label(comm);
    options.device = comm.device;
    options.issuer = comm.issuer;
    options.max_ctas = comm.config.max_ctas;
    options.copy_engines = comm.config.copy_engines;
    options.shares_blocks = comm.config.shares_blocks;
    options.net_name = comm.config.net_name;
    comm.impl = std::make_unique<Communicator>(std::move(options));
    watch(comm);
    CommState expected = CommState::kInitializing;
    if (!comm.state.compare_exchange_strong(expected, CommState::kReady)) {
      comm.impl.reset();  // aborted meanwhile
      comm.profiler.reset();
      return;
    }
    comm.progress = ncclSuccess;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    set_text(comm, error.what());
    CommState expected = CommState::kInitializing;
    comm.state.compare_exchange_strong(expected, CommState::kFailed);
    comm.progress = ours != nullptr ? ours->code() : ncclSystemError;
    throw;
  }
}

// Runs `work` now, at the end of the group, or in the background for non-blocking communicators.
ncclResult_t start(ncclComm& comm, ncclComm** out, std::function<void()> work) {
  InitJob job{&comm, out, std::move(work)};
  if (in_group()) {
    add_to_group(std::move(job));
    return ncclSuccess;
  }
  return run_init_jobs({std::move(job)});
}

// NCCL_COMM_ID names one address for all communicators of a job. A rank's n-th init joins the n-th
// communicator.
uint64_t generation(int rank) {
  static std::mutex mutex;
  static std::map<int, uint64_t>& count = *std::make_unique<std::map<int, uint64_t>>().release();
  std::lock_guard lock(mutex);
  return count[rank]++;
}

// A number for the calling thread. A thread that joins a communicator several times, with several
// ranks, has one for each of them.
uint64_t issuer_of(const UniqueId& id) {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t thread = ++threads;
  thread_local Secret last{};
  thread_local uint64_t ranks = 0;
  ranks = id.secret == last ? ranks + 1 : 0;
  last = id.secret;
  return thread << 16 | ranks;
}

void wait_for_users(ncclComm& comm) {
  while (comm.users.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

ncclResult_t init_rank(ncclComm** out, const UniqueId& id, int rank, int nranks,
                       const CommConfig& config) {
  announce(rank);
  UniqueId own = id;
  if (id.fixed != 0) own.secret = derive(id.secret, "generation", generation(rank));
  ncclComm* comm = new_handle(rank, nranks, config);
  if (cuda::available()) comm->device = cuda::current_device();
  comm->issuer = issuer_of(own);
  *out = comm;
  return start(*comm, out, [comm, own] { bring_up(*comm, own); });
}

ncclResult_t split(ncclComm& parent, int color, int key, ncclComm** out,
                   const ncclConfig_t* config) {
  auto use = std::make_shared<Use>(parent, false);
  const CommConfig child_config = CommConfig::from(config, &parent.config);
  // The caller needs a handle now. The job finds out rank and size.
  ncclComm* comm = color == NCCL_SPLIT_NOCOLOR ? nullptr : new_handle(-1, 0, child_config);
  if (comm != nullptr) {
    comm->device = parent.device;
    comm->issuer = parent.issuer;
  }
  *out = comm;
  ncclComm* holder = comm != nullptr ? comm : new_handle(-1, 0, child_config);
  const uint64_t round = (**use).reserve_split();
  return start(*holder, out, [comm, holder, use, round, color, key]() mutable {
    try {
      const Communicator::Child child = (**use).split(round, color, key);
      use.reset();
      if (comm == nullptr) {
        holder->progress = ncclSuccess;
        holder->state = CommState::kDead;
        return;
      }
      {
        std::lock_guard lock(comm->mutex);
        comm->rank = child.rank;
        comm->nranks = child.nranks;
      }
      bring_up(*comm, child.id);
    } catch (const Error& error) {
      set_text(*holder, error.what());
      holder->progress = error.code();
      CommState expected = CommState::kInitializing;
      holder->state.compare_exchange_strong(expected, CommState::kFailed);
      throw;
    }
  });
}

ncclResult_t shrink(ncclComm& parent, const std::vector<int>& excluded, ncclComm** out,
                    const ncclConfig_t* config, bool abort_parent) {
  const CommConfig child_config = CommConfig::from(config, &parent.config);
  Communicator::Child child;
  {
    const Use use(parent, false);
    if (abort_parent)
      use->stop(ncclInvalidUsage, "the communicator was stopped by ncclCommShrink", false);
    child = use->shrink(excluded);
  }
  return init_rank(out, child.id, child.rank, child.nranks, child_config);
}

void finalize(ncclComm& comm) {
  const Use use(comm, false);
  // In host mode an operation is complete when its call returns. Only calls of other threads may
  // still run.
  while (comm.users.load() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
  CommState expected = CommState::kReady;
  if (!comm.state.compare_exchange_strong(expected, CommState::kFinalized) &&
      expected == CommState::kRevoked)
    fail(ncclInvalidUsage, "comm has been revoked, it cannot be finalized: destroy it");
}

void destroy(ncclComm& comm) {
  while (comm.state.load() == CommState::kInitializing)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (comm.state.exchange(CommState::kDead) == CommState::kDead)
    fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  wait_for_users(comm);
  const std::string lost = comm.impl == nullptr ? "" : comm.impl->unreceived();
  comm.impl.reset();
  comm.profiler.reset();
  if (!lost.empty()) fail(ncclInvalidUsage, "{}; the communicator is destroyed", lost);
}

void abort(ncclComm& comm) {
  const CommState state = comm.state.exchange(CommState::kDead);
  if (state == CommState::kDead)
    fail(ncclInvalidArgument, "comm has been destroyed or aborted already");
  if (state == CommState::kInitializing) return;  // bring_up() will find the state kDead
  if (comm.impl != nullptr)
    comm.impl->stop(ncclInternalError, fmt::format("rank {} aborted the communicator", comm.rank),
                    state != CommState::kFinalized);
  wait_for_users(comm);
  comm.impl.reset();
  comm.profiler.reset();
}

void revoke(ncclComm& comm) {
  CommState expected = CommState::kReady;
  if (!comm.state.compare_exchange_strong(expected, CommState::kRevoked)) {
    if (expected == CommState::kRevoked) return;
    fail(ncclInvalidUsage, "comm cannot be revoked: it is not ready");
  }
  comm.impl->stop(ncclInvalidUsage, fmt::format("rank {} revoked the communicator", comm.rank),
                  false);
  wait_for_users(comm);
}

ncclResult_t async_error(ncclComm& comm) {
  const CommState state = comm.state.load();
  if (state == CommState::kInitializing) return ncclInProgress;
  if (comm.progress.load() == ncclInProgress) return ncclInProgress;
  if (state == CommState::kReady || state == CommState::kFinalized) {
    const Use use(comm, false);  // another thread may destroy it
    use->poll_gpu();
    const FaultState::Answer fault = use->faults().get();
    if (fault.code != ncclSuccess) {
      set_text(comm, fault.text);
      return fault.code;
    }
  }
  return comm.progress.load();
}

}  // namespace weft
