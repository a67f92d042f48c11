// See timeline.h.
#include "src/workload/timeline.h"

#include <algorithm>
#include <limits>
#include <set>

#include "src/base/error.h"
#include "src/workload/link_sharing.h"

namespace weft::workload {
namespace {

// Work of an operation on one actor, or of a collective on all of its actors.
struct Task {
  int op = 0;
  int cost = -1;  // of a collective: index of the distinct costs
  std::vector<int> actors;
  std::vector<int> followers;  // tasks that wait for this one
  int waits = 0;               // for that many
  double left_us = 0, speed = 0;
  double begin_us = 0, end_us = 0;
  int cause = -1;  // a task
};

class TimelineRun {
 public:
  TimelineRun(const Graph& graph, CommCosts& costs) : graph_(graph), actors_(actors_of(graph)) {
    make_tasks(costs);
    make_edges();
    sharing_.emplace(costs_);
    computing_.resize(actors_.ranks.size());
    taken_.resize(actors_.ranks.size());
  }

  Timeline go() {
    for (size_t i = 0; i < tasks_.size(); i++)
      if (tasks_[i].waits == 0) begin(static_cast<int>(i));
    while (!running_.empty()) {
      find_speeds();
      double next = std::numeric_limits<double>::infinity();
      for (const int t : running_) next = std::min(next, task(t).left_us / task(t).speed);
      account(next);
      now_ += next;
      std::vector<int> ended;
      for (const int t : running_) {
        task(t).left_us -= next * task(t).speed;
        if (task(t).left_us <= 1e-9 * (1 + next)) ended.push_back(t);
      }
      for (const int t : ended) end(t);
    }
    if (done_ < tasks_.size()) refuse_circle();
    return finish();
  }

 private:
  Task& task(int t) { return tasks_[static_cast<size_t>(t)]; }
  const Op& op_of(const Task& task) const { return graph_.ops[static_cast<size_t>(task.op)]; }

  int computes(const Task& task) const { return is_host_stream(op_of(task).stream) ? 0 : 1; }

  void make_tasks(CommCosts& costs) {
    std::map<const CommCost*, int> known;
    of_op_.resize(graph_.ops.size());
    for (size_t i = 0; i < graph_.ops.size(); i++) {
      const Op& op = graph_.ops[i];
      const auto add = [&](std::vector<int> actors, double us, int cost) {
        of_op_[i].push_back(static_cast<int>(tasks_.size()));
        Task& made = tasks_.emplace_back();
        made.op = static_cast<int>(i);
        made.actors = std::move(actors);
        made.left_us = us;
        made.cost = cost;
      };
      if (!op.collective) {
        for (const int actor : actors_.of(op)) add({actor}, op.us, -1);
        continue;
      }
      const Instances& instances = graph_.groups[static_cast<size_t>(op.group)].instances;
      const double whole = op.parts > 1 ? op.call_bytes : op.bytes;
      const CommCost& cost = costs.cost(*op.collective, whole, instances);
      double us = cost.us;
      if (op.parts > 1) {
        const double first = std::min(us, costs.cost(*op.collective, op.bytes, instances).us);
        us = op.part == 0 || op.call_bytes <= 0 ? first : cost.us * op.bytes / op.call_bytes;
      }
      if (op.us > 0) us = op.us;
      const auto [it, fresh] = known.emplace(&cost, static_cast<int>(costs_.size()));
      if (fresh) costs_.push_back(&cost);
      add(actors_.of(op), us, it->second);
    }
  }

  void wait(int after, int before) {
    task(before).followers.push_back(after);
    task(after).waits++;
  }

  void make_edges() {
    std::map<std::pair<int, std::string_view>, int> last;  // of an actor's stream
    for (size_t t = 0; t < tasks_.size(); t++) {
      const Op& op = op_of(tasks_[t]);
      std::set<int> before;
      for (const int actor : tasks_[t].actors) {
        const auto [it, fresh] = last.try_emplace({actor, op.stream}, static_cast<int>(t));
        if (!fresh) before.insert(std::exchange(it->second, static_cast<int>(t)));
      }
      for (const int dependency : op.after)
        for (const int d : of_op_[static_cast<size_t>(dependency)])
          if (std::find_first_of(task(d).actors.begin(), task(d).actors.end(),
                                 tasks_[t].actors.begin(),
                                 tasks_[t].actors.end()) != task(d).actors.end())
            before.insert(d);
      for (const int each : before) wait(static_cast<int>(t), each);
    }
  }

  void begin(int t) {
    Task& one = task(t);
    one.begin_us = now_;
    running_.push_back(t);
    for (const int actor : one.actors) {
      if (one.cost < 0)
        computing_[static_cast<size_t>(actor)] += computes(one);
      else
        taken_[static_cast<size_t>(actor)].push_back(t);
    }
  }

  void end(int t) {
    Task& one = task(t);
    one.end_us = now_;
    done_++;
    running_.erase(std::find(running_.begin(), running_.end(), t));
    for (const int actor : one.actors) {
      auto& taken = taken_[static_cast<size_t>(actor)];
      if (one.cost < 0)
        computing_[static_cast<size_t>(actor)] -= computes(one);
      else
        taken.erase(std::find(taken.begin(), taken.end(), t));
    }
    for (const int f : one.followers) {
      task(f).cause = t;  // the last one to end stays
      if (--task(f).waits == 0) begin(f);
    }
  }

  void find_speeds() {
    std::vector<std::pair<LinkSharing::Runner, int>> collectives;
    for (const int t : running_)
      if (task(t).cost >= 0) collectives.push_back({{task(t).cost, op_of(task(t)).priority}, t});
    std::sort(collectives.begin(), collectives.end());
    std::vector<LinkSharing::Runner> runners;
    for (const auto& [runner, t] : collectives) runners.push_back(runner);
    const std::vector<double>& speeds = sharing_->speeds(runners);
    for (size_t i = 0; i < collectives.size(); i++)
      task(collectives[i].second).speed = std::max(speeds[i], 1e-9);
    for (const int t : running_) {
      if (task(t).cost >= 0) continue;
      const auto actor = static_cast<size_t>(task(t).actors.front());
      task(t).speed = computes(task(t)) == 0 ? 1 : free_share(actor) / computing_[actor];
    }
  }

  // Of the multiprocessors. A rank's compute always gets some.
  double free_share(size_t actor) const {
    if (graph_.sms <= 0) return 1;
    int taken = 0;
    for (const int t : taken_[actor]) {
      const Op& op = op_of(tasks_[static_cast<size_t>(t)]);
      taken += op.sms >= 0 ? op.sms : graph_.comm_sms;
    }
    return std::max(0.1, 1 - static_cast<double>(taken) / graph_.sms);
  }

  void account(double us) {
    for (size_t a = 0; a < actors_.ranks.size(); a++) {
      const double weight = us * static_cast<double>(actors_.ranks[a].size()) / graph_.nranks;
      if (computing_[a] > 0) timeline_.compute_us += weight;
      if (taken_[a].empty()) continue;
      timeline_.comm_us += weight;
      if (computing_[a] > 0) continue;
      timeline_.exposed_us += weight;
      for (const int t : taken_[a])
        timeline_.exposed_by_kind[*op_of(task(t)).collective] +=
            weight / static_cast<double>(taken_[a].size());
    }
  }

  [[noreturn]] void refuse_circle() {
    for (const Task& one : tasks_)
      if (one.waits > 0)
        fail(ncclInvalidArgument,
             "operation '{}' never begins: operations wait for each other in a circle, counting "
             "the order of streams",
             op_of(one).id);
    fail(ncclInternalError, "the timeline ended early");
  }

  Timeline finish() {
    timeline_.us = now_;
    std::vector<int> calls(costs_.size(), 0);
    for (const Task& one : tasks_)
      if (one.cost >= 0) {
        double ranks = 0;
        for (const int a : one.actors)
          ranks += static_cast<double>(actors_.ranks[static_cast<size_t>(a)].size());
        const CommCost& cost = *costs_[static_cast<size_t>(one.cost)];
        timeline_.alone_by_kind[*op_of(one).collective] += cost.us * ranks / graph_.nranks;
        calls[static_cast<size_t>(one.cost)]++;
      }
    std::map<int, double> busy;
    for (size_t c = 0; c < costs_.size(); c++)
      for (const LinkLoad& load : costs_[c]->loads)
        busy[load.link] += load.share * costs_[c]->us * calls[c];
    timeline_.link_busy_us.assign(busy.begin(), busy.end());
    std::stable_sort(timeline_.link_busy_us.begin(), timeline_.link_busy_us.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    list_spans();
    timeline_.actors = actors_;
    return std::move(timeline_);
  }

  // In order of their begin; and the critical path.
  void list_spans() {
    std::vector<int> order(tasks_.size()), number(tasks_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return task(a).begin_us < task(b).begin_us; });
    for (size_t i = 0; i < order.size(); i++)
      number[static_cast<size_t>(order[i])] = static_cast<int>(i);
    int last = -1;
    for (const int t : order) {
      const Task& one = task(t);
      timeline_.spans.push_back({one.op, one.cost < 0 ? one.actors.front() : -1, one.begin_us,
                                 one.end_us,
                                 one.cause < 0 ? -1 : number[static_cast<size_t>(one.cause)]});
      if (last < 0 || one.end_us > timeline_.spans[static_cast<size_t>(last)].end_us)
        last = number[static_cast<size_t>(t)];
    }
    for (; last >= 0; last = timeline_.spans[static_cast<size_t>(last)].cause)
      timeline_.critical.push_back(last);
    std::reverse(timeline_.critical.begin(), timeline_.critical.end());
  }

  const Graph& graph_;
  const Actors actors_;
  std::vector<const CommCost*> costs_;
  std::vector<Task> tasks_;
  std::vector<std::vector<int>> of_op_;  // tasks per operation
  std::optional<LinkSharing> sharing_;
  std::vector<int> running_;
  std::vector<int> computing_;           // per actor: compute tasks that run
  std::vector<std::vector<int>> taken_;  // per actor: collectives that run
  double now_ = 0;
  size_t done_ = 0;
  Timeline timeline_;
};

}  // namespace

Timeline run(const Graph& graph, CommCosts& costs) { return TimelineRun(graph, costs).go(); }

}  // namespace weft::workload
