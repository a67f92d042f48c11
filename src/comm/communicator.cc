// See communicator.h.
#include "src/comm/communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "algorithms/generators/helped.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/comm/agreement.h"
#include "src/comm/cluster.h"
#include "src/comm/helping_hosts.h"
#include "src/comm/one_sided.h"
#include "src/comm/peer_process.h"
#include "src/comm/priority.h"
#include "src/comm/rank_config.h"
#include "src/comm/rendezvous.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/exec/cuda/lane_geometry.h"
#include "src/exec/cuda/lane_image.h"
#include "src/exec/cuda/net_memory.h"
#include "src/planner/graph_dump.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/hwloc_view.h"
#include "src/transport/acceptor.h"
#include "src/transport/event_loop.h"

namespace weft {
namespace {

// Called before the mesh exists: the mesh needs the number of channels that schedules use.
std::shared_ptr<const ImportedSchedules> load_schedules(const CommunicatorOptions& options,
                                                        const Config& config) {
  if (options.schedules != nullptr) return options.schedules;
  const bool named = !config.schedules.empty() || !config.msccl_xml_files.empty() ||
                     !config.msccl_algo_dir.empty();
  return named ? ImportedSchedules::load(config, options.nranks, options.rank == 0)
               : std::make_shared<const ImportedSchedules>();
}

// The GPU's memory for what is behind the words of the rank's area.
std::function<LaneGpuMemory()> memory_for_nics(const Config& config, int device,
                                               const MeshPlan& plan) {
  return [&config, device, bytes = plan.area_bytes - plan.lane_words_bytes] {
    LaneGpuMemory memory = cuda::net_memory(device, bytes, config.dmabuf_enable);
    memory.needs_flush = memory.needs_flush || config.net_force_flush;
    return memory;
  };
}

// Why a schedule cannot go through FIFOs in host memory; empty: it can.
std::string unfit_for_fifos(const ImportedSchedule& schedule, const Mesh& mesh, bool on_gpu) {
  if (!fits_fifos(schedule, mesh.ring_bytes()))
    return fmt::format(
        "it has {} messages of {} chunks on their way at once, too many for FIFOs of {} bytes "
        "(WEFT_RING_BYTES)",
        schedule.fifo_depth, schedule.most_step_chunks, mesh.ring_bytes());
  if (!on_gpu) return "";
  for (const auto& [ends, channels] : schedule.channels)
    if (channels > mesh.plan_channels())
      return fmt::format("rank {} has {} channels to rank {}, through host memory there are {}",
                         ends.first, channels, ends.second, mesh.plan_channels());
  return unfit_for_host_fifos(
      (schedule.in_place != nullptr ? schedule.in_place : schedule.out_of_place)->schedule());
}

bool share_host(const std::vector<PeerInfo>& infos) {
  return std::all_of(infos.begin(), infos.end(),
                     [&](const PeerInfo& info) { return info.host == infos[0].host; });
}

// Between any two members.
int usual_channels(const CommunicatorOptions& options, bool multi_connection) {
  if (options.helped_ranks > 0) return kHelpedChannels;
  return multi_connection ? kMultiConnection.channels : kCollectiveChannels;
}

NetLanes net_lanes_of(const Config& config, const std::string& communicator,
                      const PlanChooser& chooser, const std::vector<PeerInfo>& infos) {
  if (!cuda::available()) return NetLanes::kNone;
  const bool schedules = !config.topo.empty() || !chooser.imported().all().empty();
  const auto settings = CompressionSettings::parse(compression_for(config.compress, communicator));
  return decide_net_lanes(config, infos, schedules, settings.has_rules(),
                          [&] { return chooser.agreed().nics.reach_gpus; });
}

// What messages say of ranks.
void name_ranks(host::RankContext& context, const std::vector<PeerInfo>& infos, int rank,
                const std::string& communicator) {
  const PeerInfo& me = infos[static_cast<size_t>(rank)];
  context.place =
      fmt::format(" (communicator {}, host {}, pid {})", communicator, me.host_name, me.pid);
  context.about_peer = [infos, me](int peer) {
    return stopped_in_words(me, infos[static_cast<size_t>(peer)]);
  };
}

Placement placement_of(const Mesh& mesh, const std::vector<PeerInfo>& infos,
                       bool multi_connection) {
  Placement placement;
  placement.one_process = mesh.one_process();
  placement.one_host = mesh.one_host();
  placement.multi_connection = multi_connection;
  placement.hosts = hosts_of_hierarchy(host_numbers(infos));
  return placement;
}

// While it lives, an init can be cancelled.
class CancelledBy {
 public:
  CancelledBy(InitCancel* cancel, std::function<void()> stop) : cancel_(cancel) {
    if (cancel_ != nullptr) cancel_->arm(std::move(stop));
  }
  ~CancelledBy() {
    if (cancel_ != nullptr) cancel_->disarm();
  }
  CancelledBy(const CancelledBy&) = delete;
  CancelledBy& operator=(const CancelledBy&) = delete;

 private:
  InitCancel* cancel_;
};

// A rank that leaves waits so long for others to begin the calls that it has made.
constexpr std::chrono::milliseconds kOthersCome{1000};

Config config_of(const CommunicatorOptions& options) {
  Config config = options.helped_ranks > 0 ? helped_config() : Config::from_environment();
  if (options.max_ctas > 0) config.max_ctas = options.max_ctas;
  return rank_config(std::move(config), options.nranks, cuda::available());
}

}  // namespace

Communicator::Communicator(CommunicatorOptions options)
    : options_(std::move(options)),
      config_(config_of(options_)),
      gone_(static_cast<size_t>(options_.nranks) + kMostCpuNodes) {
  const auto started = std::chrono::steady_clock::now();
  const Deadline deadline = in_seconds(config_.init_timeout_s);
  if (!config_.topo_dump_file.empty()) dump_machine(this_machine({hwloc_view}), options_.rank);
  chooser_ = std::make_unique<PlanChooser>(config_, options_.rank, options_.label,
                                           load_schedules(options_, config_));
  const CancelledBy armed(options_.cancel.get(), [this] { cancel(); });
  try {
    join(deadline);
    connect(deadline);
    if (cuda::available()) start_gpu(deadline);
    exclude_schedules_that_do_not_fit();
    children_ = std::make_unique<Offspring>(options_, *control_, *mesh_, vigil_.faults,
                                            config_.init_timeout_s);
    one_sided_ = std::make_unique<OneSided>(
        *this,
        WindowParts{options_,
                    config_,
                    context_,
                    *control_,
                    *mesh_,
                    chooser_->agreed().nics,
                    gpu_.get(),
                    {},
                    [this](ncclResult_t code, const std::string& text) { announce(code, text); }});
    use_helpers(deadline);
    use_compression(compression_for(config_.compress, options_.name), false, deadline);
    const host::Priority priority = priority_for(config_.priority, options_.name);
    if (priority != host::Priority::kNormal) set_priority(priority);
  } catch (const Error& error) {
    // All ranks report the same text and code.
    const std::string what = error.what(), me = fmt::format("rank {}", options_.rank);
    const bool heard =
        error.code() == ncclRemoteError || what.starts_with(me) || what.starts_with(kNotAllCame);
    stop(error.code(), heard ? what : fmt::format("{} could not join: {}", me, what), true);
    silence();
    throw;
  } catch (...) {
    silence();
    throw;
  }
  if (!config_.graph_dump_file.empty()) {
    std::vector<std::string> gpus;
    for (int rank = 0; rank < options_.nranks; rank++)
      gpus.emplace_back(mesh_->info(rank).gpu,
                        strnlen(mesh_->info(rank).gpu, sizeof mesh_->info(rank).gpu));
    dump_graphs(config_, *chooser_, options_.rank, gpus);
  }
  log_ready(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
}

// Joins the rendezvous and opens the control channel.
void Communicator::join(Deadline deadline) {
  const UniqueId& id = options_.id;
  if (id.fixed != 0 && options_.rank == 0) {
    // An earlier job that is about to end, or a short-lived connection, may still hold the port.
    Acceptor::instance().listen_at(id.addresses[0], std::min(deadline, in_seconds(10)));
    Rendezvous::open(id.secret);
  }
  context_.rank = options_.rank;
  context_.messages.reset(options_.nranks);
  context_.label = options_.label;
  context_.gone = gone_.data();
  context_.cpu_nodes_from = options_.nranks;
  context_.timeout_s = config_.timeout_s;
  context_.stall_warning_s = config_.stall_warning_s;
  const Branch& branch = options_.branch;
  const UniqueId& joins = branch.place == 0 ? id : branch.id;
  auto control = std::make_unique<ControlChannel>(
      joins.candidates(host_identity(config_)), joins.secret, options_.rank, options_.nranks,
      deadline, [this](const News& news) { hear(news); }, [this] { return stopped(); });
  if (branch.place > 0) control->join_branch(id, branch.place, branch.ranks);
  {
    std::lock_guard lock(vigil_.mutex);
    control_ = std::move(control);
  }
  check();  // it may have been cancelled just before
}

// The process that made the id may end when all ranks are up. Then ranks could not gather any more.
// So rank 0's process takes over.
void Communicator::settle_rendezvous(const std::vector<PeerInfo>& infos, Deadline deadline) {
  auto next = join_first_rank(
      *control_, options_.id.secret, options_.rank, infos, deadline,
      [this](const News& news) { hear(news); }, [this] { return stopped(); });
  if (next == nullptr) return;
  {
    std::lock_guard lock(vigil_.mutex);
    std::swap(control_, next);
  }
  check();
  // The old one still tells of ranks that die before they have moved.
  control_->all_gather("moved", deadline);
  next->move_on();
}

std::string Communicator::shown_name() const {
  return options_.name.empty() ? fmt::format("{:016x}", key()) : options_.name;
}

void Communicator::compare_after_stalls(const std::vector<PeerInfo>& infos) {
  const PeerInfo& me = infos[static_cast<size_t>(options_.rank)];
  auto stalls = std::make_unique<StallExchange>(
      options_, context_,
      StallExchange::Surroundings{
          me.process, shown_name(),
          fmt::format("{} (host {}, pid {})", options_.label, me.host_name, me.pid),
          [this](int peer, uint64_t bytes) {
            return mesh_->link_kind(peer) != LinkKind::kNetwork && bytes > mesh_->ring_bytes();
          },
          [this](const News& news) { vigil_.watch->tell(news); },
          [this](const std::string& text) { announce(ncclInvalidUsage, text); },
          [this](const std::string& text) { WEFT_TELL("{}: {}", context_.label, text); }, siblings,
          has_one_caller,
          [infos, host = me.host](int peer) {
            return infos[static_cast<size_t>(peer)].host != host;
          },
          [this](int peer) { return gone_[static_cast<size_t>(peer)].load(); }});
  EventLoop::instance().run([&] { vigil_.stalls = std::move(stalls); });
  context_.stalls = [this] {
    if (!stopped()) vigil_.stalls->tell();
  };
}

// Agrees on plans, then connects what the plans need: CPU nodes, and FIFOs to all peers.
void Communicator::connect(Deadline deadline) {
  const int rank = options_.rank, nranks = options_.nranks;
  const std::vector<PeerInfo> infos =
      gather_infos(*control_, config_, chooser_->imported(),
                   cuda::available() ? cuda::bus_id(options_.device) : "", options_.name, deadline);
  settle_rendezvous(infos, deadline);
  name_ranks(context_, infos, rank, shown_name());
  std::shared_ptr<Network> network;
  const auto devices = [&] {
    network = open_network(config_, options_.net, options_.id.secret, rank);
    return devices_of(*network);
  };
  if (nranks > 1) {
    auto watch =
        PeerWatch::join(options_.id.secret, rank, infos, [this](const News& news) { hear(news); });
    {
      std::lock_guard lock(vigil_.mutex);
      vigil_.watch = std::move(watch);
    }
    if (options_.helped_ranks == 0)
      chooser_->agree(agree_on_plans(
          {rank, options_.device, options_.label, options_.id.secret, config_, *control_, devices},
          infos, deadline));
    vigil_.watch->connect(rank, deadline, [this] { control_->check(); });
    compare_after_stalls(infos);
  }
  auto nodes = std::make_unique<CpuNodes>(rank, nranks);
  nodes->decide(chooser_->most_cpu_nodes(cuda::available()), infos);
  chooser_->set_cpu_nodes(nodes->count());
  const bool one_host = share_host(infos), on_gpus = cuda::available();
  const bool multi_connection = !one_host && uses_multi_connection(config_, nranks, on_gpus);
  const NetLanes net_lanes = net_lanes_of(config_, options_.name, *chooser_, infos);
  const bool has_lanes = net_lanes != NetLanes::kNone;
  MeshPlan plan{infos,
                nodes->count(),
                chooser_->channels(usual_channels(options_, multi_connection)),
                (one_host && on_gpus) || has_lanes
                    ? cuda::GpuExecutor::area_bytes(nranks, config_.scratch_bytes, has_lanes)
                    : 0,
                net_lanes,
                has_lanes ? cuda::GpuExecutor::area_words_bytes(nranks) : 0,
                chooser_->connected(),
                chooser_->agreed().nics,
                options_.helped_ranks,
                {},
                std::move(network)};
  for (int node = 0; node < nodes->count(); node++)
    plan.infos.push_back(infos[static_cast<size_t>(nodes->rank_of(node))]);
  nodes->open(options_.id.secret, plan, config_, context_,
              [this](ncclResult_t code, const std::string& text) { give_up(code, text); });
  {
    std::lock_guard lock(vigil_.mutex);
    cpu_nodes_ = std::move(nodes);
  }
  if (has_lanes) plan.gpu_memory = memory_for_nics(config_, options_.device, plan);
  auto mesh = std::make_unique<Mesh>(*control_, options_.id.secret, rank, plan, config_,
                                     options_.net, deadline, gone_.data());
  cpu_nodes_->connect(deadline, *control_);
  // Nobody leaves before CPU nodes are connected.
  if (cpu_nodes_->count() > 0) control_->all_gather("CPU nodes", deadline);
  context_.local_ranks = mesh->ranks_of_machine();
  {
    std::lock_guard lock(vigil_.mutex);
    mesh_ = std::move(mesh);
    context_.door = &mesh_->door();
  }
  chooser_->place(placement_of(*mesh_, infos, multi_connection && net_lanes != NetLanes::kAll));
  operations_ =
      std::make_unique<OperationBuilder>(config_, nranks, mesh_->one_host(), mesh_->ring_bytes());
  plans_ = std::make_unique<LoweredPlans>(rank, options_.label, *chooser_, *mesh_, *cpu_nodes_);
  if (!config_.trace.empty()) plans_->describe_means();
  auto tasks = std::make_unique<HostTasks>(config_, nranks, context_, *mesh_, *chooser_, *plans_,
                                           *cpu_nodes_, *operations_);
  std::lock_guard lock(vigil_.mutex);
  host_ = std::move(tasks);
}

// Called when the mesh and the GPU's data path exist, because they decide how large FIFOs are. They
// are the same on all ranks, so all exclude the same schedules. Lanes cut FIFOs to measure.
void Communicator::exclude_schedules_that_do_not_fit() {
  for (const auto& schedule : chooser_->imported().all()) {
    const int nodes = schedule->cpu_nodes();
    std::string why = cpu_nodes_->lacks(nodes);
    const std::vector<CodecSpec>& codecs = schedule->codecs();
    if (why.empty() && on_gpu() && !codecs.empty())
      why = chooser_->placement().lanes ? cuda::unfit_for_lanes(codecs)
                                        : "it has codecs, and these GPUs run no lanes";
    if (why.empty() && !(chooser_->placement().lanes && nodes == 0))
      why = unfit_for_fifos(*schedule, *mesh_, on_gpu());
    if (!why.empty()) chooser_->exclude(*schedule, why);
  }
}

void Communicator::start_gpu(Deadline deadline) {
  cuda::GpuOptions options;
  options.rank = options_.rank;
  options.nranks = options_.nranks;
  options.device = options_.device;
  options.max_ctas = config_.max_ctas;
  options.process = mesh_->info(options_.rank).process;
  options.sharing = mesh_->ranks_sharing_gpu();
  options.one_process = mesh_->one_process();
  options.one_host = mesh_->one_host();
  options.net_lanes = mesh_->net_lanes() != NetLanes::kNone;
  options.cpus_copy = mesh_->network_copies();
  options.group = siphash(options_.id.secret, "gpu", 3);
  options.issuer = options_.issuer;
  options.timeout_s = config_.timeout_s;
  options.scratch_bytes = config_.scratch_bytes;
  options.cta_bytes = config_.cta_bytes;
  constexpr size_t kLeastFifoBytes = 4096;
  options.lane_fifo_bytes = config_.lane_fifo_bytes > 0
                                ? std::max(config_.lane_fifo_bytes, kLeastFifoBytes)
                                : lane_fifo_bytes(mesh_->network_facts());
  options.lane_slots = config_.lane_fifo_bytes > 0 && config_.lane_slots <= 0
                           ? static_cast<int>(cuda::LaneRoom().slots)
                           : config_.lane_slots;
  options.eager_bytes = config_.eager_bytes;
  options.packet_bytes = config_.packet_bytes;
  options.straight = config_.straight;
  options.share_buffers = config_.share_buffers;
  options.share_bytes = config_.share_bytes;
  options.system_scope = config_.system_scope;
  options.graph_mixing = config_.graph_mixing;
  options.count_graphs = config_.count_graphs;
  options.shares_blocks = options_.shares_blocks;
  options.copy_engines = options_.copy_engines || config_.copy_engines;
  auto gpu = std::make_unique<GpuLauncher>(
      options, GpuLauncherParts{config_, context_, *control_, *mesh_, *chooser_, *plans_,
                                *cpu_nodes_, *operations_, host_->compression()});
  {
    std::lock_guard lock(vigil_.mutex);
    gpu_ = std::move(gpu);
  }
  gpu_->connect(deadline);
}

void Communicator::log_ready(double seconds) const {
  std::array<int, 4> kinds{};
  for (int peer = 0; peer < options_.nranks; peer++)
    kinds[static_cast<size_t>(mesh_->link_kind(peer))]++;
  WEFT_INFO(kInit,
            "{}: ready in {:.3f} s, {}; peers: {} in this process, {} over shared memory, "
            "{} over network {}",
            options_.label, seconds,
            gpu_ != nullptr ? fmt::format("GPU {}", gpu_->device()) : "host mode", kinds[1],
            kinds[2], kinds[3], mesh_->network_name());
}

Communicator::~Communicator() {
  leave();
  silence();
}

std::string Communicator::last_words(bool told) {
  if (on_gpu() || vigil_.stalls == nullptr) return "";
  if (!vigil_.faults.known() && !stopped()) {
    std::string text = host_->unreceived();
    if (text.empty()) text = vigil_.stalls->say_last_words(kOthersCome);
    if (!text.empty() || !vigil_.faults.known()) return text;
  } else if (told) {
    return "";
  }
  const FaultState::Answer answer = vigil_.faults.settle();
  return answer.code == ncclInvalidUsage ? answer.text : "";
}

void Communicator::leave() {
  if (gpu_ != nullptr) gpu_->synchronize();
  one_sided_->synchronize();
  if (HelpingHosts* helpers = host_->helpers()) helpers->finish();
  cpu_nodes_->finish(60);  // other ranks may still wait for their messages
  if (!vigil_.faults.known()) {
    one_sided_->drain(60);
    mesh_->drain(60);
  }
  if (vigil_.watch != nullptr) vigil_.watch->tell(report(News::Kind::kLeft, ncclSuccess, ""));
  control_->leave();
  // disconnect() waits for kernels, and a kernel may wait until the peer's goodbye arrives. So
  // every rank says goodbye first.
  if (gpu_ != nullptr) gpu_->disconnect();
}

size_t Communicator::memory_bytes() const {
  return gpu_ != nullptr ? gpu_->device_bytes() : mesh_->arena_bytes();
}

double Communicator::estimate_us(const Call& call) const {
  if (call.irregular != nullptr) return 0;
  return chooser_->estimate_us(
      plan_call({call.kind, options_.nranks, call.root}, call, options_.rank, false));
}

void Communicator::force_plan(CollectiveKind kind, const Generator* generator) {
  if (generator != nullptr && generator->peer_memory && (gpu_ == nullptr || gpu_->via_host()))
    fail(ncclInvalidUsage, "plan: '{}' reaches into peers' memory, which {}", generator->name,
         gpu_ == nullptr ? "host mode cannot" : "these GPUs cannot");
  if (generator != nullptr && options_.nranks > 1 && generator->cpu_nodes > cpu_nodes_->count())
    fail(ncclInvalidUsage, "plan: '{}' needs {} CPU nodes, there are {}: {}", generator->name,
         generator->cpu_nodes, cpu_nodes_->count(),
         cpu_nodes_->why_none().empty() ? "they are made at init, where WEFT_PLAN or the table asks"
                                        : cpu_nodes_->why_none());
  chooser_->force(kind, generator);
}

void Communicator::set_priority(host::Priority priority) {
  host::Turns::use();
  context_.priority = priority;
  if (gpu_ != nullptr) gpu_->set_priority(priority);
  for (const NetworkLinks::Link& link : mesh_->network_links())
    link.stream->proxy().set_priority(*link.stream, static_cast<int>(priority));
}

void Communicator::launch(std::span<const Call* const> calls) {
  poll_gpu();
  check();
  gpu_->launch(calls);
}

}  // namespace weft
