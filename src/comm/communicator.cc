// See communicator.h.
#include "src/comm/communicator.h"

#include <algorithm>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/rendezvous.h"
#include "src/planner/cost_model.h"
#include "src/planner/proved_schedules.h"
#include "src/schedule/lower.h"
#include "src/topology/sources/discover.h"
#include "src/transport/acceptor.h"
#include "src/transport/doorbell.h"
#include "src/transport/segments.h"

namespace weft {
namespace {

constexpr uint64_t kNoLending = ~uint64_t{0};

constexpr uint64_t kSegment = 65408;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Communicator::Communicator(const UniqueId& id, int rank, int nranks, const std::string& label,
                           int device, int max_ctas, bool copy_engines, const std::string& net_name,
                           std::shared_ptr<const ImportedSchedules> schedules)
    : secret_(id.secret),
      rank_(rank),
      nranks_(nranks),
      config_(tuned(Config::from_environment(), nranks)),
      gone_(static_cast<size_t>(nranks) + kMostCpuNodes),
      last_send_(static_cast<size_t>(nranks)),
      last_receive_(static_cast<size_t>(nranks)) {
  const auto started = std::chrono::steady_clock::now();
  const Deadline deadline = in_seconds(config_.init_timeout_s);
  if (!config_.topo_dump_file.empty()) dump_machine(this_machine(), rank);
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    forced_[static_cast<size_t>(kind)] =
        forced_generator(static_cast<CollectiveKind>(kind), config_.plan);
  load_schedules(std::move(schedules));
  if (id.fixed != 0 && rank == 0) {
    // A job that ends as this one starts, or somebody's short connection, may still hold the port.
    Acceptor::instance().listen_at(id.addresses[0], std::min(deadline, in_seconds(10)));
    Rendezvous::open(id.secret);
  }
  context_.rank = rank;
  context_.label = label;
  context_.gone = gone_.data();
  context_.cpu_nodes_from = nranks;
  context_.timeout_s = config_.timeout_s;
  context_.stall_warning_s = config_.stall_warning_s;
  control_ = std::make_unique<ControlChannel>(
      id.candidates(host_identity(config_)), secret_, rank, nranks, deadline,
      [this](int peer, bool failed, const std::string& why) { on_news(peer, failed, why); });
  // If this throws, members go before the channel does, whose thread must not look at them then.
  struct Quiet {
    ControlChannel* channel;
    ~Quiet() {
      if (channel != nullptr) channel->silence();
    }
  } unless_made{control_.get()};
  connected_ = imported_;
  try {
    const std::vector<PeerInfo> infos = gather_infos(
        *control_, config_, *imported_, cuda::available() ? cuda::bus_id(device) : "", deadline);
    agree_on_plans(infos, deadline);
    const int cpu_nodes = cpu_nodes_for(infos);
    {
      std::lock_guard lock(fault_mutex_);
      cpu_nodes_ = cpu_nodes;
    }
    MeshPlan plan{infos, cpu_nodes_, channels_for_plans(infos), *connected_};
    for (int node = 0; node < cpu_nodes_; node++)
      plan.infos.push_back(infos[static_cast<size_t>(cpu_node_rank(node))]);
    std::vector<std::unique_ptr<CpuNode>> own = open_cpu_nodes(plan);
    mesh_ = std::make_unique<Mesh>(*control_, secret_, rank, plan, config_, net_name, deadline,
                                   gone_.data());
    for (const auto& node : own) node->connect(deadline);
    // Nobody leaves before they are connected.
    if (cpu_nodes_ > 0) control_->all_gather("CPU nodes", deadline);
    std::lock_guard lock(fault_mutex_);
    own_nodes_ = std::move(own);
    node_jobs_.resize(own_nodes_.size());
  } catch (const Error& error) {
    control_->abort(fmt::format("rank {} could not join: {}", rank, error.what()));
    throw;
  }
  {
    std::lock_guard lock(fault_mutex_);
    context_.door = &mesh_->door();
  }
  context_.local_ranks = mesh_->ranks_of_machine();
  check_schedules_fit();
  placement_ = {mesh_->one_process(), mesh_->one_host(), false,
                !mesh_->one_host() && multi_connection_if_hosts(config_, nranks)};
  if (cuda::available()) {
    try {
      cuda::GpuOptions options;
      options.rank = rank;
      options.nranks = nranks;
      options.device = device;
      options.max_ctas = max_ctas > 0 ? max_ctas : config_.max_ctas;
      options.process = mesh_->info(rank).process;
      options.sharing = mesh_->ranks_sharing_gpu();
      options.one_process = mesh_->one_process();
      options.one_host = mesh_->one_host();
      options.group = siphash(secret_, "gpu", 3);
      options.timeout_s = config_.timeout_s;
      options.scratch_bytes = config_.scratch_bytes;
      options.cta_bytes = config_.cta_bytes;
      options.graph_mixing = config_.graph_mixing;
      options.copy_engines = copy_engines || config_.copy_engines;
      gpu_ = std::make_unique<cuda::GpuExecutor>(options);
      connect_gpu(deadline);
      if (config_.stall_warning_s > 0)
        stalls_ = std::make_unique<StallWatch>(label, config_.stall_warning_s,
                                               [this] { return gpu_->long_wait(); });
    } catch (const Error& error) {
      control_->abort(fmt::format("rank {} could not join: {}", rank, error.what()));
      throw;
    }
  }
  ready_.store(true);
  const auto send_recv =
      ProvedSchedules::instance().get(kSendRecv, {CollectiveKind::kSendRecv, 2, 0}, false);
  send_program_ = lower(*send_recv, 0);
  receive_program_ = lower(*send_recv, 1);
  if (rings_) send_recv_program_ = merge_lanes(send_program_, receive_program_);
  std::array<int, 4> reached{};
  for (int peer = 0; peer < nranks; peer++) reached[static_cast<size_t>(mesh_->link_kind(peer))]++;
  WEFT_INFO(kInit,
            "{}: ready in {:.3f} s, {}; peers: {} in this process, {} over shared memory, "
            "{} over network {}",
            label,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(),
            gpu_ != nullptr ? fmt::format("GPU {}", gpu_->device()) : "host mode", reached[1],
            reached[2], reached[3], mesh_->network_name());
  unless_made.channel = nullptr;
}

Communicator::~Communicator() {
  leave();
  control_->silence();  // the control thread must not look at it any more when it goes
  control_.reset();
}

void Communicator::leave() {
  if (gpu_ != nullptr) gpu_->synchronize();
  // What others wait for comes from them.
  for (const auto& node : own_nodes_) node->finish(60);
  if (mesh_ != nullptr && fault().empty()) mesh_->drain(60);
  if (control_ != nullptr) control_->leave();
  disconnect_rings();  // may wait for kernels that wait for what the goodbye tells
}

std::string Communicator::fault() const {
  std::lock_guard lock(fault_mutex_);
  return fault_;
}

ncclResult_t Communicator::fault_code() const {
  std::lock_guard lock(fault_mutex_);
  return fault_code_;
}

void Communicator::stop(ncclResult_t code, const std::string& why, bool tell) {
  {
    std::lock_guard lock(fault_mutex_);
    if (fault_.empty()) {
      fault_ = why;
      fault_code_ = code;
    }
    context_.stop.store(1, std::memory_order_release);
    stop_cpu_nodes();
    if (gpu_ != nullptr) gpu_->stop();
    if (context_.door != nullptr) wake_all(*context_.door);
  }
  if (tell && control_ != nullptr) control_->abort(why);
}

// Control thread. During construction the control channel itself tells the waiting thread.
void Communicator::on_news(int peer, bool failed, const std::string& why) {
  if (peer < 0) {
    // The rendezvous lives in some process; if that is a rank's, the rank died with it.
    int holder = -1;
    const uint64_t process = ready_.load() ? control_->rendezvous_process() : 0;
    for (int r = 0; failed && ready_.load() && r < nranks_; r++)
      if (mesh_->info(r).process == process && !gone_[static_cast<size_t>(r)].load()) holder = r;
    if (holder < 0) {
      WEFT_INFO(kBootstrap, "{}: {}; peers that die will not be noticed any more", context_.label,
                why);
      return;
    }
    return on_news(holder, true, fmt::format("rank {} died: {}", holder, why));
  }
  std::lock_guard lock(fault_mutex_);
  if (peer < nranks_) gone_[static_cast<size_t>(peer)].store(true);
  std::vector<int> nodes;  // that are gone with it
  for (int node = 0; node < cpu_nodes_; node++)
    if (cpu_node_rank(node) == peer) nodes.push_back(nranks_ + node);
  for (const int node : nodes) gone_[static_cast<size_t>(node)].store(true);
  if (failed) {
    if (fault_.empty()) {
      fault_ = fmt::format("{}: {}", context_.label, why);
      fault_code_ = ncclRemoteError;
    }
    context_.stop.store(1, std::memory_order_release);
    stop_cpu_nodes();
    if (gpu_ != nullptr) gpu_->stop();
  } else if (gpu_ != nullptr && peer < nranks_) {
    gpu_->peer_left(peer);
    for (const int node : nodes) gpu_->peer_left(node);
  }
  if (context_.door != nullptr) wake_all(*context_.door);
}

// Cuts blocks into chunks, and chunks into slices of which a ring holds at least four, or more
// where the schedule needs FIFOs that deep.
void Communicator::slice_operation(Operation& op, const Program& program) const {
  const auto chunks = static_cast<uint64_t>(program.chunks);
  const uint64_t unit = program.uniform_only ? 1 : std::max<uint64_t>(1, 64 / op.element);
  op.chunk = round_up((op.count + chunks - 1) / chunks, unit);
  const auto depth = static_cast<uint64_t>(program.fifo_depth);
  const uint64_t ring_share =
      (mesh_->ring_bytes() / std::max<uint64_t>(4, depth + 2) - kFifoAlign) /
      static_cast<uint64_t>(program.max_step_chunks);
  uint64_t wanted = placement_.one_host ? config_.slice_bytes : config_.net_slice_bytes;
  if (!placement_.one_host && nranks_ > 2 && program.collective.reduces())
    wanted = std::min(wanted, config_.net_sum_slice_bytes);
  uint64_t slice = std::max<uint64_t>(64, std::min(wanted, ring_share) / 64 * 64);
  // With its headers, a number of the largest segments of loopback TCP: no small one is left over.
  if (!placement_.one_host && slice > kSegment) slice = slice / kSegment * kSegment;
  if (slice * static_cast<uint64_t>(program.max_step_chunks) + kFifoAlign >
      mesh_->ring_bytes() / std::max<uint64_t>(2, depth > 2 ? depth + 1 : 2))
    fail(ncclInvalidUsage,
         "a plan that moves {} chunks at once does not fit in FIFOs of {} bytes (WEFT_RING_BYTES)",
         program.max_step_chunks, mesh_->ring_bytes());
  op.slice = slice / op.element;
  op.iterations = std::max<uint64_t>(1, (op.chunk + op.slice - 1) / op.slice);
  // Between hosts a short last slice costs as much time as a long one: all of a length, then.
  if (!placement_.one_host)
    op.slice = std::min(op.slice, round_up((op.chunk + op.iterations - 1) / op.iterations, unit));
  if (op.iterations == 1) op.slice = op.chunk;
}

std::byte* Communicator::scratch(size_t bytes) {
  if (bytes == 0) return nullptr;
  // Earlier ones stay: a task of the same batch may still use them.
  if (scratch_.empty() || scratch_.back().size() < bytes)
    scratch_.push_back(Mapping::anonymous(round_up(
        std::max<size_t>(bytes, scratch_.empty() ? 0 : 2 * scratch_.back().size()), 4096)));
  return scratch_.back().data();
}

void Communicator::begin() {
  last_collective_ = nullptr;
  for (auto& jobs : node_jobs_) jobs.clear();  // of a batch that was given up before it ran
  if (!point_to_point_) return;
  point_to_point_ = false;
  std::fill(last_send_.begin(), last_send_.end(), nullptr);
  std::fill(last_receive_.begin(), last_receive_.end(), nullptr);
}

// Everything but scratch memory, lending and ports.
Operation Communicator::operation_for(const Call& call, const Program& program,
                                      uint32_t tag) const {
  Operation op;
  op.program = program.view();
  op.input = static_cast<const std::byte*>(call.input);
  op.output = static_cast<std::byte*>(call.output);
  op.count = call.count;
  op.reduction = call.reduction;
  if (op.reduction.divide_by > 1 && program.partial_sums && element_size(op.reduction.type) <= 2 &&
      (op.reduction.type == ncclFloat16 || op.reduction.type == ncclBfloat16 ||
       op.reduction.type == ncclFloat8e4m3 || op.reduction.type == ncclFloat8e5m2)) {
    // Partial sums of small floats could overflow on the way: scale what goes in instead of what
    // comes out.
    op.reduction.premultiply = true;
    op.reduction.scale = 1.0f / static_cast<float>(op.reduction.divide_by);
    op.reduction.divide_by = 0;
  }
  op.element = static_cast<uint32_t>(element_size(call.reduction.type));
  op.collective = static_cast<uint8_t>(call.kind);
  op.root = call.kind == CollectiveKind::kSendRecv ? 0 : call.root;
  op.plan = tag;
  slice_operation(op, program);
  return op;
}

bool Communicator::pays_to_lend(const Call& call, const Program& program,
                                const Operation& op) const {
  const Collective& c = program.collective;
  if (!lending_pays(c.kind, static_cast<double>(array_bytes(c, call)))) return false;
  // Where processes pass on a broadcast in one piece, all that lending would do is make each wait
  // until the next one has read it.
  return placement_.one_process || op.iterations > 1 || !program.is_passed_on();
}

void Communicator::add_to(host::Batch& batch, const Call& call) {
  if (call.count == 0) return;
  const bool send_recv = call.kind == CollectiveKind::kSendRecv;
  const Plan* plan = send_recv ? nullptr : &choose_plan(call);
  const Program* program = !send_recv   ? &plan->program
                           : call.sends ? &send_program_
                                        : &receive_program_;
  if (program->uniform_only && call.count % static_cast<size_t>(program->chunks) != 0)
    fail(ncclInvalidUsage, "count {} does not divide by the {} chunks of the schedule", call.count,
         program->chunks);
  host::Task& task = batch.add();
  task.context = &context_;
  task.call = &call;
  Operation& op = task.operation;
  op = operation_for(call, *program, plan == nullptr ? 0 : plan->tag);
  op.sequence = send_recv ? 0 : sequence_++;
  if (plan != nullptr && !plan->cpu_programs.empty()) add_cpu_parts(call, *plan, op.sequence);
  op.scratch = scratch(static_cast<size_t>(program->scratch_chunks) * op.chunk * op.element);
  const size_t message = std::min(op.slice, op.count) * op.element;
  const bool lends = message >= config_.zero_copy_bytes &&
                     !copies_only_[static_cast<size_t>(call.kind)] &&
                     (!placement_.one_host || pays_to_lend(call, *program, op));
  op.lend_from = lends ? config_.zero_copy_bytes : kNoLending;
  if (op.lend_from != kNoLending && !placement_.one_process) {
    const Collective& c = program->collective;
    const size_t block = op.count * op.element;
    if (const int blocks = c.input_blocks(program->rank); blocks > 0 && op.input != nullptr) {
      const SegmentRef ref =
          Segments::instance().find(op.input, block * static_cast<size_t>(blocks));
      op.input_segment = ref.id;
      op.input_offset = ref.offset;
    }
    if (const int blocks = c.output_blocks(program->rank); blocks > 0 && op.output != nullptr) {
      const SegmentRef ref =
          Segments::instance().find(op.output, block * static_cast<size_t>(blocks));
      op.output_segment = ref.id;
      op.output_offset = ref.offset;
    }
  }
  task.sends.clear();
  task.receives.clear();
  const auto peer_of = [&](const ProgramPort& port) { return send_recv ? call.root : port.peer; };
  const auto channel_of = [&](const ProgramPort& port) {
    return send_recv ? kPointToPointChannel : collective_channel(port.channel);
  };
  for (const ProgramPort& port : program->sends)
    task.sends.push_back(&mesh_->sender(peer_of(port), channel_of(port)));
  for (const ProgramPort& port : program->receives)
    task.receives.push_back(&mesh_->receiver(peer_of(port), channel_of(port)));
  // Calls that use the same FIFOs follow each other; everything else of a group runs side by side.
  const host::Task*& previous = !send_recv   ? last_collective_
                                : call.sends ? last_send_[static_cast<size_t>(call.root)]
                                             : last_receive_[static_cast<size_t>(call.root)];
  point_to_point_ = point_to_point_ || send_recv;
  task.after = previous;
  previous = &task;
}

}  // namespace weft
