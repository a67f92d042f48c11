// See bring_up.h.
#include "src/comm/bring_up.h"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "include/weft.h"
#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/base/trace.h"
#include "src/base/variables.h"
#include "src/comm/ras.h"
#include "src/comm/status.h"
#include "src/comm/stream_spans.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/nvml.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

std::string label(const ncclComm& comm) {
  return comm.config.name.empty()
             ? fmt::format("rank {} of {}", comm.rank, comm.nranks)
             : fmt::format("rank {} of {} in '{}'", comm.rank, comm.nranks, comm.config.name);
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
        *link.stream, std::make_unique<StreamSpans>(track, link.route.peer, link.route.channel,
                                                    link.sends, link.nic));
}

// As NCCL writes it: tools look for these words.
std::string who(const ncclComm& comm, const char* function) {
  int nvml = -1;
  std::string bus = "0";
  if (cuda::available()) {
    bus = cuda::bus_id(comm.device);
    for (const NvmlGpu& gpu : read_nvml(Discovery{}.nvml).gpus)
      if (gpu.bus == bus) nvml = gpu.index;
    std::erase_if(bus, [](char c) { return c == ':' || c == '.'; });
    bus.erase(0, std::min(bus.find_first_not_of('0'), bus.size() - 1));
  }
  return fmt::format("{} comm {} rank {} nranks {} cudaDev {} nvmlDev {} busId {} commId {:#x}",
                     function, fmt::ptr(&comm), comm.rank, comm.nranks, comm.device, nvml, bus,
                     comm.identity.load());
}

CommunicatorOptions options_of(ncclComm& comm, const UniqueId& id, const Branch& branch) {
  CommunicatorOptions options;
  options.id = id;
  options.branch = branch;
  options.rank = comm.rank;
  options.nranks = comm.nranks;
  options.label = label(comm);
  options.name = comm.config.name;
  options.device = comm.device;
  options.issuer = comm.issuer;
  options.max_ctas = comm.config.max_ctas;
  options.copy_engines = comm.config.copy_engines;
  options.shares_blocks = comm.config.shares_blocks;
  options.net = comm.config.net;
  options.cancel = comm.cancel;
  return options;
}

}  // namespace

void announce(int rank) {
  static std::once_flag once;
  std::call_once(once, [rank] {
    std::string banner = fmt::format("NCCL version {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    if (const int toolkit = cuda::runtime_version(); toolkit > 0)
      banner += fmt::format("+cuda{}.{}", toolkit / 1000, toolkit % 1000 / 10);
    banner += " as Weft " WEFT_VERSION_STRING;
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
    for (const EnvironmentNote& note : environment_notes(Config::from_environment())) {
      if (note.warns)
        WEFT_WARN("{}", note.text);
      else
        WEFT_INFO(kEnv, "{}", note.text);
    }
  });
}

void bring_up(ncclComm& comm, const UniqueId& id, const char* function, const Branch& branch,
              const std::function<void(Communicator&)>& prepare) {
  try {
    log::set_thread_device(comm.device);
    serve_status();
    serve_ras();
    if (comm.identity == 0) comm.identity = siphash(id.secret, "observed", 8);
    WEFT_INFO(kInit, "[Rank {}] {} - Init START", comm.rank, who(comm, function));
    for (const EnvironmentNote& note : comm.config.notes) {
      if (note.warns)
        WEFT_WARN("{}: config: {}", label(comm), note.text);
      else
        WEFT_INFO(kInit, "{}: config: {}", label(comm), note.text);
    }
    comm.impl = std::make_unique<Communicator>(options_of(comm, id, branch));
    if (comm.cancel->cancelled()) comm.impl->check();  // in the last moment of its init
    watch(comm);
    if (prepare) {
      comm.cancel->arm([&comm] {
        comm.impl->stop(ncclInternalError,
                        fmt::format("rank {} aborted the communicator", comm.rank), true);
      });
      prepare(*comm.impl);
      comm.cancel->disarm();
    }
    CommState expected = CommState::kInitializing;
    if (!comm.state.compare_exchange_strong(expected, CommState::kReady)) {
      comm.impl.reset();  // aborted meanwhile
      comm.profiler.reset();
      fail(ncclInvalidUsage, "the communicator was aborted during its init");
    }
    WEFT_INFO(kInit, "{} - Init COMPLETE", who(comm, function));
  } catch (const std::exception& error) {
    comm.cancel->disarm();
    const auto* ours = dynamic_cast<const Error*>(&error);
    set_text(comm, error.what());
    CommState expected = CommState::kInitializing;
    comm.progress.fail(ours != nullptr ? ours->code() : ncclSystemError);
    comm.state.compare_exchange_strong(expected, CommState::kFailed);
    throw;
  }
}

ncclResult_t start(InitJob job) {
  if (in_group()) {
    add_to_group(std::move(job));
    return ncclSuccess;
  }
  std::vector<InitJob> jobs;
  jobs.push_back(std::move(job));
  return run_init_jobs(std::move(jobs));
}

}  // namespace weft
