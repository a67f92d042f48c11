// See plan_chooser.h.
#include "src/planner/plan_chooser.h"

#include <algorithm>
#include <bit>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

// A generator's name is a string literal, so data() ends with a NUL.
Choice made_by(const Generator& generator, PlanPath path) {
  return {&generator, nullptr, path, generator.name.data()};
}

// One of the kernels for special shapes. They need access between all pairs.
bool needs_peer_memory(const PlanOption& option) {
  return option.path == PlanPath::kPackets || option.path == PlanPath::kLoadStore;
}

}  // namespace

PlanChooser::PlanChooser(const Config& config, int rank, std::string label,
                         std::shared_ptr<const ImportedSchedules> imported)
    : rank_(rank),
      label_(std::move(label)),
      packet_bytes_(config.packet_bytes),
      emulates_topo_(!config.topo.empty()),
      imported_(std::move(imported)),
      logged_(imported_->all().size()),
      connected_(imported_) {
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    forced_[static_cast<size_t>(kind)] =
        forced_generator(static_cast<CollectiveKind>(kind), config.plan);
}

void PlanChooser::agree(CommunicatorPlans plans) {
  agreed_ = std::move(plans);
  option_generators_.clear();
  for (const PlanOption& option : agreed_.table.options)
    option_generators_.push_back(option.schedule < 0 ? find_generator(option.name) : nullptr);
  has_lanes_ =
      std::any_of(agreed_.table.options.begin(), agreed_.table.options.end(),
                  [](const PlanOption& option) { return option.path == PlanPath::kLanes; });
  connected_ = ImportedSchedules::both(*imported_, *agreed_.schedules);
  changed();
}

void PlanChooser::place(const Placement& placement, CopyTest copies) {
  placement_ = placement;
  copies_ = std::move(copies);
  changed();
}

void PlanChooser::compress(std::shared_ptr<const CompressedPlans> plans) {
  const CompressedPlans* const used = plans.get();
  if (used != nullptr) all_compressed_.push_back(std::move(plans));
  compressed_.store(used, std::memory_order_release);
  changed();
}

void PlanChooser::exclude(const ImportedSchedule& schedule, const std::string& why) {
  for (size_t i = 0; i < imported_->all().size(); i++)
    if (imported_->all()[i].get() == &schedule) logged_[i] = kNeverFits;
  changed();
  if (rank_ == 0) WEFT_WARN("schedule {} is not used: {}", schedule.path, why);
}

int PlanChooser::channels(int usual) const {
  int most = usual;
  for (const Generator* generator : forced_)
    if (generator != nullptr) most = std::max(most, generator->channels);
  for (size_t i = 0; i < option_generators_.size() && cpu_nodes_ > 0; i++)
    if (option_generators_[i] != nullptr && agreed_.table.options[i].barred.empty())
      most = std::max(most, option_generators_[i]->channels);
  return most;
}

int PlanChooser::most_cpu_nodes(bool on_gpus) const {
  int most = 0;
  for (const Generator* generator : forced_)
    if (generator != nullptr) most = std::max(most, generator->cpu_nodes);
  const SelectionTable& table = agreed_.table;
  for (size_t i = 0; i < option_generators_.size(); i++)
    if (option_generators_[i] != nullptr && table.options[i].barred.empty() &&
        (!on_gpus || table.chooses(static_cast<int>(i))))
      most = std::max(most, option_generators_[i]->cpu_nodes);
  for (const auto& schedule : connected_->all()) most = std::max(most, schedule->cpu_nodes());
  return most;
}

void PlanChooser::force(CollectiveKind kind, const Generator* generator) {
  forced_[static_cast<size_t>(kind)] = generator;
  changed();
}

const Generator* PlanChooser::generator_of(const PlanOption* option) const {
  if (option == nullptr) return nullptr;
  return option_generators_[static_cast<size_t>(option - agreed_.table.options.data())];
}

const Generator* PlanChooser::unless_captured(const Generator* generator,
                                              const PlanCall& call) const {
  if (generator == nullptr || !call.captured || generator->cpu_nodes == 0) return generator;
  if (!logged_captured_.exchange(true))
    WEFT_INFO(kTuning, "{}: {} is not used in graphs: CPU nodes do not hear of their replays",
              label_, generator->name);
  return nullptr;
}

bool PlanChooser::goes_by_rules() const {
  const SelectionTable& table = agreed_.table;
  // A table of lanes was made for the machine; others know nothing of GPUs of several hosts.
  const bool lanes_of_hosts = placement_.lanes && !placement_.one_host && !has_lanes_;
  return (table.advisory && !placement_.peer_memory) || (lanes_of_hosts && !emulates_topo_) ||
         (placement_.via_host && !emulates_topo_ && table.via_host.empty());
}

bool PlanChooser::uses_cpu_nodes(const Generator* forced, const PlanCall& call) const {
  if (cpu_nodes_ == 0) return false;
  if (forced != nullptr) return forced->cpu_nodes > 0;
  const Generator* generator = unless_captured(
      generator_of(agreed_.table.choose(call.collective.kind, call.bytes, false)), call);
  return generator != nullptr && generator->cpu_nodes > 0;
}

CompressedPlans::Found PlanChooser::imported_for(const PlanCall& call) const {
  const Generator* forced = forced_[static_cast<size_t>(call.collective.kind)];
  for (size_t i = 0; i < imported_->all().size(); i++) {
    const ImportedSchedule& schedule = *imported_->all()[i];
    if (schedule.collective.kind != call.collective.kind || logged_[i] == kNeverFits) continue;
    Unfit why = unfit(schedule, call);
    const CompressionRule* rule = nullptr;
    if (why == Unfit::kNone && schedule.lossy()) {
      const CompressedPlans* allowed = compressed();
      rule = allowed == nullptr ? nullptr : allowed->permits(schedule);
      if (rule == nullptr) why = Unfit::kLossy;
    }
    if (why == Unfit::kNone && forced == nullptr) return {&schedule, rule};
    // Rank 0 logs each rule once. All ranks decide alike.
    const auto bit = static_cast<uint16_t>(1u << static_cast<unsigned>(why));
    if (rank_ != 0 || (logged_[i].load(std::memory_order_relaxed) & bit) != 0) continue;
    if ((logged_[i].fetch_or(bit) & bit) != 0) continue;
    const std::string text = fmt::format(
        "schedule {} is not used for {} of {} bytes {}: {}", schedule.path,
        name(call.collective.kind), call.bytes, call.in_place ? "in place" : "out of place",
        why == Unfit::kNone ? fmt::format("WEFT_PLAN asks for {}", forced->name)
                            : describe(why, schedule));
    if (why == Unfit::kLossy) {
      WEFT_WARN("{}", text);
    } else {
      WEFT_INFO(kInit, "{}", text);
    }
  }
  return {};
}

const PlanOption* PlanChooser::tabled(const PlanCall& call, bool kernels) const {
  const CollectiveKind kind = call.collective.kind;
  const SelectionTable& table = agreed_.table;
  if (goes_by_rules()) return nullptr;
  const PlanOption* option = table.choose(kind, call.bytes, false);
  if (option == nullptr) return nullptr;
  bool fits =
      option->schedule < 0 ||
      unfit(*agreed_.schedules->all()[static_cast<size_t>(option->schedule)], call) == Unfit::kNone;
  if (needs_peer_memory(*option)) fits = kernels && placement_.peer_memory;
  return fits ? option : table.choose(kind, call.bytes, true);
}

// Whether a forced plan, or the lack of access between some pairs, leaves only messages.
bool PlanChooser::sends_messages(const PlanCall& call, const Generator* forced) const {
  if (forced != nullptr && forced->cpu_nodes > 0) return false;  // refused
  if (!placement_.peer_memory) return true;
  return forced != nullptr && !forced->peer_memory && call.bytes > packet_bytes_;
}

// The table was made for powers of two. Where it has the choice of the rules, these know their
// limits better.
const PlanOption* PlanChooser::overruled(const PlanCall& call) const {
  const PlanOption* option = tabled(call, true);
  if (option == nullptr || !needs_peer_memory(*option)) return nullptr;
  const GpuChoice rule = choose_for_gpu(call.collective, std::bit_floor(call.bytes), packet_bytes_,
                                        nullptr, placement_.together);
  return option->name == rule.generator->name ? nullptr : option;
}

Choice PlanChooser::on_gpus(const PlanCall& call, const Generator* forced) const {
  const bool alone = call.collective.nranks == 1;
  if (!alone && sends_messages(call, forced)) return by_messages(call, forced, PlanPath::kLanes);
  if (!emulates_topo_ && copies_ && copies_(call.collective.kind, call.message_bytes()))
    return {nullptr, nullptr, PlanPath::kCopyEngines, "copy_engines"};
  if (!alone && forced == nullptr && !agreed_.table.advisory)
    if (const PlanOption* option = tabled(call, true)) {
      if (needs_peer_memory(*option)) return made_by(*generator_of(option), option->path);
      return by_messages(call, forced, PlanPath::kLanes);
    }
  if (!alone && forced == nullptr && agreed_.table.measured)
    if (const PlanOption* option = overruled(call); option != nullptr)
      return made_by(*generator_of(option), option->path);
  const GpuChoice choice =
      choose_for_gpu(call.collective, call.bytes, packet_bytes_, forced, placement_.together);
  return made_by(*choice.generator, choice.packets ? PlanPath::kPackets : PlanPath::kLoadStore);
}

Choice PlanChooser::by_messages(const PlanCall& call, const Generator* forced,
                                PlanPath path) const {
  const PlanOption* option = forced == nullptr ? tabled(call, false) : nullptr;
  if (option != nullptr && option->schedule >= 0)
    return {nullptr, agreed_.schedules->all()[static_cast<size_t>(option->schedule)].get(), path,
            option->name.c_str()};
  const Generator* generator = unless_captured(generator_of(option), call);
  if (generator != nullptr && generator->cpu_nodes <= cpu_nodes_) return made_by(*generator, path);
  return made_by(choose_generator(call.collective, call.bytes, placement_, forced), path);
}

bool PlanChooser::Helped::fits(const PlanCall& call) const {
  return plan != nullptr && plan->collective.kind == call.collective.kind && call.bytes >= from &&
         unfit(*plan, call) == Unfit::kNone;
}

Choice PlanChooser::choose(const PlanCall& call) const {
  const CollectiveKind kind = call.collective.kind;
  const Generator* forced = unless_captured(forced_[static_cast<size_t>(kind)], call);
  if (!imported_->all().empty())
    if (const auto found = imported_for(call); found.plan != nullptr) {
      const bool lanes = placement_.lanes && found.plan->cpu_nodes() == 0;
      return {nullptr, found.plan, lanes ? PlanPath::kLanes : PlanPath::kFifos,
              found.plan->path.c_str(), found.rule};
    }
  if (const CompressedPlans* plans = compressed(); plans != nullptr && forced != nullptr) {
    plans->tell_forced(call, forced->name);
  } else if (plans != nullptr) {
    if (const auto found = plans->find(call); found.plan != nullptr) {
      const bool helped = helped_compressed_.fits(call);
      const ImportedSchedule* plan = helped ? helped_compressed_.plan : found.plan;
      return {nullptr,
              plan,
              placement_.lanes || placement_.coded_lanes ? PlanPath::kLanes : PlanPath::kFifos,
              plan->path.c_str(),
              found.rule,
              helped};
    }
  }
  if (forced == nullptr && helped_.fits(call))
    return {nullptr, helped_.plan, PlanPath::kFifos, helped_.plan->path.c_str(), nullptr, true};
  if (placement_.lanes && !uses_cpu_nodes(forced, call)) return on_gpus(call, forced);
  return by_messages(call, forced, PlanPath::kFifos);
}

const PlanOption* PlanChooser::option_of(const Choice& choice, CollectiveKind kind) const {
  for (const PlanOption& option : agreed_.table.options)
    if (option.kind == kind && option.name == choice.name && option.path == choice.path)
      return &option;
  // A table for messages through FIFOs, or a forced plan.
  for (const PlanOption& option : agreed_.table.options)
    if (option.kind == kind && option.name == choice.name) return &option;
  return nullptr;
}

double PlanChooser::estimate_us(const PlanCall& call) const {
  const PlanOption* option = option_of(choose(call), call.collective.kind);
  return option == nullptr ? 0 : SelectionTable::estimate(*option, static_cast<double>(call.bytes));
}

}  // namespace weft
