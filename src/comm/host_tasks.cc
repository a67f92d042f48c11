// See host_tasks.h.
#include "src/comm/host_tasks.h"

#include <algorithm>
#include <memory>

#include "src/base/error.h"
#include "src/comm/helping_hosts.h"
#include "src/comm/wide_schedule.h"
#include "src/planner/cost_model.h"
#include "src/planner/tuning_rules.h"
#include "src/transport/segments.h"

namespace weft {
namespace {

constexpr uint64_t kNoLending = ~uint64_t{0};
constexpr size_t kLeastScratch = 4096;

}  // namespace

HostTasks::HostTasks(const Config& config, int nranks, host::RankContext& context, Mesh& mesh,
                     PlanChooser& chooser, LoweredPlans& plans, CpuNodes& nodes,
                     const OperationBuilder& operations)
    : config_(config),
      nranks_(nranks),
      context_(context),
      mesh_(mesh),
      chooser_(chooser),
      plans_(plans),
      nodes_(nodes),
      operations_(operations),
      accumulates_(config.accumulate == "float"),
      losses_(config.compress_losses_bytes, Losses::host_zeros),
      last_send_(static_cast<size_t>(nranks)),
      last_receive_(static_cast<size_t>(nranks)) {
  if (nranks == 1) return;
  const TuningRules rules = TuningRules::from(config);
  for (int k = 0; k < kCollectiveKinds; k++)
    copies_only_[static_cast<size_t>(k)] = !rules.protocols.allows(
        static_cast<CollectiveKind>(k), static_cast<int>(NcclProtocol::kSimple));
}

HostTasks::~HostTasks() = default;

void HostTasks::use(std::unique_ptr<HelpingHosts> helpers) { helpers_ = std::move(helpers); }

bool HostTasks::has(const host::RankContext* context) const {
  return context == &context_ || (helpers_ != nullptr && helpers_->has(context));
}

void HostTasks::begin() {
  if (helpers_ != nullptr) helpers_->begin();
  last_collective_ = nullptr;
  nodes_.drop_jobs();  // of a batch that was given up before it ran
  losses_.release();
  if (!point_to_point_) return;
  point_to_point_ = false;
  context_.messages.begin_batch();
  std::fill(last_send_.begin(), last_send_.end(), nullptr);
  std::fill(last_receive_.begin(), last_receive_.end(), nullptr);
}

std::byte* HostTasks::scratch(size_t bytes) {
  if (bytes == 0) return nullptr;
  // Earlier mappings stay, because a task of the same batch may still use them.
  if (scratch_.empty() || scratch_.back().size() < bytes)
    scratch_.push_back(Mapping::anonymous(
        std::max({bytes, kLeastScratch, scratch_.empty() ? 0 : 2 * scratch_.back().size()})));
  return scratch_.back().data();
}

bool HostTasks::pays_to_lend(const Call& call, const Program& program, const Operation& op) const {
  const Collective& c = program.collective;
  if (!lending_pays(c.kind, static_cast<double>(array_bytes(c, call)))) return false;
  // If processes pass a broadcast on in a single slice, lending only costs time: each rank would
  // wait until the next one has read the data.
  return mesh_.one_process() || op.iterations > 1 || !program.is_passed_on();
}

// Lent data is a network message of its own. If it must be registered, too, it must be longer to
// save time. (128 KiB took 50 us instead of 91, over a plugin of the tests on one machine. No NIC
// has been measured.)
uint64_t HostTasks::lend_from() const {
  constexpr uint64_t kLeastRegistered = 64 << 10;
  return mesh_.registers() ? std::max<uint64_t>(config_.zero_copy_bytes, kLeastRegistered)
                           : config_.zero_copy_bytes;
}

// Decides which messages carry an address instead of data.
bool HostTasks::lends(const Call& call, const Program& program, const Operation& op) const {
  const size_t message = std::min(op.slice, op.count) * op.element;
  return message >= lend_from() && !copies_only_[static_cast<size_t>(call.kind)] &&
         (!mesh_.one_host() || pays_to_lend(call, program, op));
}

// Where peers find the buffers that are lent.
void HostTasks::find_segments(const Call& call, const Program& program, Operation& op) {
  const Collective& c = program.collective;
  if (const int blocks = c.input_blocks(program.rank); blocks > 0 && op.input != nullptr) {
    const SegmentRef ref = Segments::instance().find(op.input, call.span(blocks) * op.element);
    op.input_segment = ref.id;
    op.input_offset = ref.offset;
  }
  if (const int blocks = c.output_blocks(program.rank); blocks > 0 && op.output != nullptr) {
    const SegmentRef ref = Segments::instance().find(op.output, call.span(blocks) * op.element);
    op.output_segment = ref.id;
    op.output_offset = ref.offset;
  }
}

// A rank that receives nothing in a call, as the root of a broadcast, sees no message with which it
// could compare its call. Such ranks of a host compare with each other.
void HostTasks::compare(const Operation& op) const {
  uint64_t* words = mesh_.calls();
  if (words == nullptr) return;
  const uint64_t mine = (op.sequence + 1) << 32 | uint64_t{op.collective} << 24 |
                        (static_cast<uint64_t>(op.root) & 0xffffff);
  uint64_t& word = words[op.sequence % kCallWords];
  uint64_t seen = __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  while (seen >> 32 != mine >> 32)
    if (__atomic_compare_exchange_n(&word, &seen, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return;
  if (seen == mine) return;
  throw Disagreement(
      ncclInvalidUsage,
      fmt::format("{}: operation {} is {} with root {} here, but {} with root {} on another rank: "
                  "all ranks must make the same calls in the same order",
                  context_.label, op.sequence, name(static_cast<CollectiveKind>(op.collective)),
                  op.root, name(static_cast<CollectiveKind>(seen >> 24 & 0xff)), seen & 0xffffff));
}

std::string HostTasks::unreceived() const {
  for (int peer = 0; peer < nranks_; peer++) {
    const RecvPort& port = mesh_.receiver(peer, kPointToPointChannel);
    if (port.control == nullptr || port.stream != nullptr) continue;
    const uint64_t tail = __atomic_load_n(&port.control->tail, __ATOMIC_ACQUIRE);
    uint64_t head = port.head, at = port.at;
    while (head < tail) {
      const auto& header = *reinterpret_cast<const MessageHeader*>(port.data + at);
      if (header.kind != MessageHeader::kSkip)
        return fmt::format("a send of {} bytes from rank {} to rank {} was never received",
                           header.call_bytes, peer, context_.rank);
      head += header.bytes;
      at = further(at, header.bytes, port.size);
    }
  }
  return "";
}

void HostTasks::compress(const Call& call, const Choice& choice, const Program& program,
                         Operation& op) {
  const ImportedSchedule& plan = *choice.schedule;
  compression_.add(*(plan.in_place != nullptr ? plan.in_place : plan.out_of_place), context_.rank,
                   call);
  if (!choice.compression->feedback) return;
  const Collective& c = program.collective;
  // Without what lies between the blocks of a part.
  const auto elements = [&](int blocks) { return static_cast<size_t>(blocks) * call.count; };
  const size_t inputs = elements(c.input_blocks(program.rank)),
               outputs = elements(c.output_blocks(program.rank));
  op.input_losses = losses_.of(call, inputs, outputs);
  op.output_losses = op.input_losses + inputs;
}

void HostTasks::connect_ports(const Call& call, PreparedCall& to) {
  const bool send_recv = call.kind == CollectiveKind::kSendRecv;
  const auto peer_of = [&](const ProgramPort& port) { return send_recv ? call.root : port.peer; };
  const auto channel_of = [&](const ProgramPort& port) {
    return send_recv ? kPointToPointChannel : collective_channel(port.channel);
  };
  to.sends.clear();
  to.receives.clear();
  for (const ProgramPort& port : to.program->sends)
    to.sends.push_back(&mesh_.sender(peer_of(port), channel_of(port)));
  for (const ProgramPort& port : to.program->receives)
    to.receives.push_back(&mesh_.receiver(peer_of(port), channel_of(port)));
}

// An empty part is complete with the part before it.
void HostTasks::complete_with_last(const Call& call) const {
  if (call.done == nullptr) return;
  if (last_collective_ != nullptr && last_collective_->done != nullptr &&
      last_collective_->done + last_collective_->done_words == call.done) {
    last_collective_->done_words++;
    return;
  }
  __atomic_store_n(call.done, 1, __ATOMIC_RELEASE);
}

void HostTasks::prepare(const Call& call, PreparedCall& known) {
  const uint64_t changes = chooser_.changes();
  known.choices = 0;  // it stays empty if there is no plan
  known.shape = CallShape::of(call);
  known.choice = {};
  known.plan = nullptr;
  known.place = {};
  known.in_place = false;
  if (call.kind == CollectiveKind::kSendRecv) {
    prepare(call, plans_.half(call.sends), 0, known);
  } else {
    const Collective collective{call.kind, nranks_, call.root};
    const PlanCall asked = plan_call(collective, call, context_.rank, false);
    known.place = in_place_form(collective, call, context_.rank);
    known.in_place = asked.in_place;
    known.choice = chooser_.choose(asked);
    if (!known.choice.helped) {
      known.plan = &plans_.get(known.choice, collective, asked.in_place,
                               accumulates_ && rounds_sums(asked, call));
      prepare(call, known.plan->program, known.plan->tag, known);
    }
  }
  known.choices = changes;
}

void HostTasks::prepare(const Call& call, const Program& program, uint32_t tag, PreparedCall& to) {
  Operation& op = *std::construct_at(&to.operation);
  operations_.build(op, call, program, tag);
  to.program = &program;
  to.scratch_bytes = static_cast<size_t>(program.scratch_chunks) * op.chunk * op.element;
  // A program without buffers is that of a host that helps.
  const bool lent = program.rank < program.collective.nranks && lends(call, program, op);
  op.lend_from = lent ? lend_from() : kNoLending;
  to.finds_segments = lent && !mesh_.one_process();
  connect_ports(call, to);
}

void HostTasks::add(host::Batch& batch, const Call& call) {
  if (call.irregular != nullptr) return add_irregular(batch, call, *call.irregular, false);
  if (call.count == 0) return complete_with_last(call);
  const bool send_recv = call.kind == CollectiveKind::kSendRecv;
  PreparedCall& known = prepared_.place_of(call);
  if (!known.serves(call, chooser_.changes())) prepare(call, known);
  host::Task& task = known.choice.helped
                         ? helpers_->add(batch, call, known.in_place, *known.choice.schedule)
                         : append(batch, call, known);
  if (known.choice.helped && known.choice.compression != nullptr)
    compression_.add(*known.choice.schedule->out_of_place, context_.rank, call);
  if (!known.choice.helped && !send_recv) number(call, known, task.operation);
  task.ready = call.ready;
  task.done = call.done;
  task.done_words = 1;
  // Calls that use the same FIFOs run one after the other. Other calls of a group run in parallel.
  host::Task*& previous = !send_recv   ? last_collective_
                          : call.sends ? last_send_[static_cast<size_t>(call.root)]
                                       : last_receive_[static_cast<size_t>(call.root)];
  if (send_recv) {
    point_to_point_ = true;
    context_.messages.add(call.sends, call.root);
  }
  task.after = previous;
  previous = &task;
}

// Gives a collective its number, and does what only some plans need.
void HostTasks::number(const Call& call, const PreparedCall& known, Operation& op) {
  if (known.choice.compression != nullptr) compress(call, known.choice, *known.program, op);
  op.sequence = sequence_++;
  if (known.receives.empty()) compare(op);
  if (!known.plan->cpu_programs.empty())
    add_cpu_parts(call, *known.plan, op.sequence, operations_, nodes_);
}

host::Task& HostTasks::append(host::Batch& batch, const Call& call, const PreparedCall& known) {
  host::Task& task = batch.add();
  Operation& op = task.operation;
  op = known.operation;
  op.input = static_cast<const std::byte*>(call.input);
  op.output = static_cast<std::byte*>(call.output);
  op.scratch = scratch(known.scratch_bytes);
  if (known.finds_segments) find_segments(call, *known.program, op);
  task.context = &context_;
  task.call = &call;
  task.plan = known.plan != nullptr ? known.plan->traced : nullptr;
  task.means = known.plan != nullptr ? known.plan->means : nullptr;
  task.sends = known.sends;
  task.receives = known.receives;
  return task;
}

host::Task& HostTasks::add_part(host::Batch& batch, const Call& call, const Program& program,
                                uint32_t tag, const char* traced, uint64_t number) {
  prepare(call, program, tag, part_);
  host::Task& task = append(batch, call, part_);
  task.plan = traced;
  task.operation.sequence = number;
  sequence_ = number + 1;
  task.after = last_collective_;
  last_collective_ = &task;
  return task;
}

void add_cpu_parts(const Call& call, const LoweredPlan& plan, uint64_t sequence,
                   const OperationBuilder& operations, CpuNodes& nodes) {
  for (size_t i = 0; i < plan.cpu_programs.size(); i++) {
    if (plan.cpu_programs[i].lanes.empty()) continue;  // a schedule may have nothing for a node
    CpuNode::Job job;
    job.program = &plan.cpu_programs[i];
    job.operation = operations.build(call, *job.program, plan.tag);
    job.operation.input = nullptr;
    job.operation.output = nullptr;
    job.operation.sequence = sequence;
    nodes.add_job(i, job);
  }
}

}  // namespace weft
