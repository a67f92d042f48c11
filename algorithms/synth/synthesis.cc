// See synthesis.h.
#include "algorithms/synth/synthesis.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <optional>

#include "algorithms/bounds/bounds.h"
#include "src/base/error.h"
#include "src/schedule/verify.h"
#include "src/simulator/lane_simulation.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/routes.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kSketchEngine = "taccl", kLatencyEngine = "latency";
// For few ranks another trial is cheap. So a good enough schedule gets more trials, until they have
// taken this many events together.
constexpr int kSmall = 16;
constexpr int kTrialsWhenSmall = 3;
constexpr uint64_t kCheapEvents = 200000;
constexpr double kVeryGood = 0.9996;
// After this many events per rank, slightly less is good enough.
constexpr uint64_t kManyEventsPerRank = 15000;
constexpr double kLittleLess = 0.01;
// Possible error of an estimate from slices at an uneven pace.
constexpr double kRough = 0.002;
// Schedules with more steps are proved in parallel with their simulation.
constexpr size_t kLongToProve = 10000;
// Possible error of an estimate.
constexpr double kDoubt = 0.001;
// If the best is this close below good enough, no other engine runs.
constexpr double kHardToBeat = 0.02;
// With less time than this perhaps only one engine runs. For small arrays that is the latency
// engine, not the one that fills links.
constexpr double kHurried = 1, kSmallArray = 256 << 10;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Drops hints that name the default route.
void drop_usual_routes(const Machine& machine, Schedule& schedule) {
  const FlowGraph ways = flow_graph(machine);
  Routes routes(ways.machine);
  std::erase_if(schedule.routes, [&](const RouteHint& hint) {
    const auto usual = routes.between(hint.from, hint.to);
    return std::equal(usual.begin(), usual.end(), hint.links.begin(), hint.links.end());
  });
}

void count_parts(Synthesized& result) {
  std::map<std::pair<int32_t, int32_t>, int> channels;
  for (size_t r = 0; r < result.schedule.ranks.size(); r++) {
    const RankSchedule& rank = result.schedule.ranks[r];
    result.lanes = std::max(result.lanes, static_cast<int>(rank.lanes.size()));
    for (const Lane& lane : rank.lanes) {
      result.steps += static_cast<int64_t>(lane.steps.size());
      for (const Step& step : lane.steps)
        for (const Operand& to : step.to)
          if (to.kind == Operand::Kind::kPeer) {
            int& most = channels[{static_cast<int32_t>(r), to.index}];
            most = std::max(most, to.channel + 1);
          }
    }
  }
  for (const auto& [pair, count] : channels) result.channels = std::max(result.channels, count);
}

size_t steps_of(const Schedule& schedule) {
  size_t steps = 0;
  for (const RankSchedule& rank : schedule.ranks)
    for (const Lane& lane : rank.lanes) steps += lane.steps.size();
  return steps;
}

struct Proof {
  bool out_of_place = false, in_place = false;
};

Proof prove(const std::shared_ptr<const Schedule>& schedule, int fifo_depth) {
  Proof proof;
  proof.out_of_place = verify(schedule, false, fifo_depth).fifo_depth() == fifo_depth;
  try {
    verify(schedule, true, fifo_depth);
    proof.in_place = true;
  } catch (const Error&) {
    proof.in_place = false;  // an in-place exchange overwrites data before it is sent
  }
  return proof;
}

class Search {
 public:
  Search(const Machine& machine, const Collective& collective, double bytes,
         const SynthesisOptions& options)
      : machine_(machine), collective_(collective), bytes_(bytes), options_(options) {}

  Synthesized run() {
    if (!options_.first) find_bound();
    bool known = false;
    // Only one engine accepts sketches.
    const std::string_view wanted = options_.engine.empty() && !options_.sketch.empty()
                                        ? kSketchEngine
                                        : std::string_view(options_.engine);
    if (!options_.sketch.empty() && wanted != kSketchEngine)
      fail(ncclInvalidArgument, "engine {} takes no sketch, {} does", wanted, kSketchEngine);
    if (options_.sketch.empty() && wanted == kSketchEngine)
      fail(ncclInvalidArgument, "engine {} needs a sketch", kSketchEngine);
    for (const SynthesisEngine* engine : engines()) {
      if (!wanted.empty() && engine->name != wanted) continue;
      known = true;
      if (options_.first && asked_) break;  // other engines would take longer
      if (!finished() && !(best_ && best_->ratio >= options_.good_enough - kHardToBeat))
        ask(*engine);
    }
    if (!known)
      fail(ncclInvalidArgument, "no engine is called '{}' ({})", options_.engine, names());
    if (!best_)
      fail(ncclInvalidUsage, "no schedule for {} of {} ranks on {}{}", name(collective_.kind),
           collective_.nranks, machine_.name, reasons_);
    return finish();
  }

 private:
  static std::string names() {
    std::string text;
    for (const SynthesisEngine& engine : synthesis_engines())
      text += (text.empty() ? "" : ", ") + std::string(engine.name);
    return text;
  }

  // In the order in which they run.
  std::vector<const SynthesisEngine*> engines() const {
    std::vector<const SynthesisEngine*> list;
    for (const SynthesisEngine& engine : synthesis_engines()) list.push_back(&engine);
    if (options_.time_limit_s < kHurried && bytes_ <= kSmallArray)
      std::stable_partition(list.begin(), list.end(), [](const SynthesisEngine* engine) {
        return engine->name == kLatencyEngine;
      });
    return list;
  }

  void find_bound() {
    const Bound bound = throughput_bound(machine_, collective_);
    if (!(bound.algbw_gbps > 0))
      fail(ncclInvalidUsage, "{}: not every GPU can reach every other one",
           machine_.name.empty() ? "the machine" : machine_.name);
    bound_gbps_ = bound.algbw_gbps;
  }

  bool out_of_time() const { return seconds_since(begin_) > options_.time_limit_s; }
  bool finished() const { return best_ && (options_.first || out_of_time() || good_enough()); }

  bool good_enough() const {
    if (best_->ratio >= std::max(kVeryGood, options_.good_enough)) return true;
    const bool long_enough =
        events_ > kManyEventsPerRank * static_cast<uint64_t>(collective_.nranks);
    if (long_enough &&
        best_->ratio - (best_->estimated ? kRough : 0) >= options_.good_enough - kLittleLess)
      return true;
    return best_->ratio + (best_->estimated ? kDoubt : 0) >= options_.good_enough &&
           (collective_.nranks > kSmall || trials_ >= kTrialsWhenSmall || events_ > kCheapEvents);
  }

  void ask(const SynthesisEngine& engine) {
    SynthesisTask task{machine_, collective_, bytes_, options_,
                       std::max(0.0, options_.time_limit_s - seconds_since(begin_))};
    if (!engine.supports(task)) {
      reasons_ += fmt::format("; {}: not for {}", engine.name, name(collective_.kind));
      return;
    }
    asked_ = true;
    std::string why;
    bool any = false;
    for (const auto& candidate : engine.candidates(task)) {
      if (finished()) return;
      // Engines compare it with what links allow.
      task.reached = best_ && !options_.lanes ? best_->ratio : 0;
      try {
        consider(engine, candidate);
        any = true;
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!any) reasons_ += fmt::format("; {}: {}", engine.name, why);
  }

  void consider(const SynthesisEngine& engine, const std::function<Schedule()>& candidate) {
    auto schedule = std::make_shared<Schedule>(candidate());
    trials_++;
    drop_usual_routes(machine_, *schedule);
    if (options_.first) {
      best_.emplace();
      best_->engine = engine.name;
      best_schedule_ = std::move(schedule);
      return;
    }
    std::future<Proof> proof;
    if (steps_of(*schedule) > kLongToProve)
      proof = std::async(std::launch::async | std::launch::deferred, prove, schedule,
                         options_.simulation.fifo_depth);
    SimulationOptions simulating = options_.simulation;
    simulating.estimate = true;
    // With what steps cost, good times of small arrays are far above what links allow.
    if (!options_.lanes)
      simulating.beyond_us = bytes_ / (bound_gbps_ * options_.good_enough) * 1e-3;
    if (best_) simulating.beyond_us = std::min(simulating.beyond_us, best_->time_us);
    const Simulation simulation = simulated(*schedule, simulating);
    events_ += simulation.events;
    if (options_.progress)
      options_.progress(fmt::format("{}: {:.4g} us, {:.4g} GB/s", engine.name, simulation.time_us,
                                    simulation.algbw_gbps));
    if (best_ && !beats_best(*schedule, simulation.time_us)) return;
    best_.emplace();
    best_schedule_ = std::move(schedule);
    best_proof_ = std::move(proof);
    best_->engine = engine.name;
    best_->time_us = simulation.time_us;
    best_->estimated = !simulation.even;
    best_->algbw_gbps = simulation.algbw_gbps;
    best_->ratio = simulation.algbw_gbps / bound_gbps_;
  }

  Simulation simulated(const Schedule& schedule, const SimulationOptions& options) {
    if (!options_.lanes) return simulate(machine_, schedule, bytes_, options);
    if (!prepared_) prepared_.emplace(machine_);
    return simulate_lanes(*prepared_, step_graph(schedule), bytes_, *options_.lanes, options);
  }

  bool beats_best(const Schedule& schedule, double time_us) const {
    const size_t steps = steps_of(schedule), of_best = steps_of(*best_schedule_);
    if (steps < of_best) return time_us <= best_->time_us;
    return time_us < best_->time_us * (steps > of_best ? 1 - options_.worth_more_steps : 1);
  }

  Synthesized finish() {
    const bool cut_short = options_.first || (out_of_time() && !good_enough());
    Synthesized result = std::move(*best_);
    result.cut_short = cut_short;
    if (!options_.first) {
      const Proof proof = best_proof_.valid()
                              ? best_proof_.get()
                              : prove(best_schedule_, options_.simulation.fifo_depth);
      result.verified = proof.out_of_place;
      result.in_place = proof.in_place;
    }
    result.schedule = std::move(*best_schedule_);
    result.schedule.name = fmt::format("{}-{}", result.engine, name(collective_.kind));
    count_parts(result);
    result.bound_gbps = bound_gbps_;
    result.seconds = seconds_since(begin_);
    return result;
  }

  const Machine& machine_;
  const Collective& collective_;
  const double bytes_;
  const SynthesisOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  std::optional<SimulatedMachine> prepared_;
  double bound_gbps_ = 0;
  bool asked_ = false;  // an engine that supports the task has run
  int trials_ = 0;
  uint64_t events_ = 0;
  std::optional<Synthesized> best_;  // without its schedule
  std::shared_ptr<Schedule> best_schedule_;
  std::future<Proof> best_proof_;
  std::string reasons_;
};

}  // namespace

Synthesized synthesize(const Machine& machine, const Collective& collective, double bytes,
                       const SynthesisOptions& options) {
  if (collective.nranks < 2)
    fail(ncclInvalidUsage, "{}: {} has nothing to do on {} GPU", machine.name,
         name(collective.kind), collective.nranks);
  if (!(bytes > 0)) fail(ncclInvalidArgument, "an array of {} bytes", bytes);
  return Search(machine, collective, bytes, options).run();
}

}  // namespace weft
