// See contiguity.h.
#include "algorithms/synth/taccl/contiguity.h"

#include <algorithm>

namespace weft {
namespace {

// The previous send on the same link, -1: none.
std::vector<int32_t> before_on_link(const TacclProblem& problem, const TacclOrder& order) {
  std::vector<int32_t> last(problem.topology.links.size(), -1), before;
  for (size_t s = 0; s < order.sends.size(); s++) {
    int32_t& on_link = last[static_cast<size_t>(order.sends[s].link)];
    before.push_back(on_link);
    on_link = static_cast<int32_t>(s);
  }
  return before;
}

// Runs of sends that travel together, as one node each.
struct Runs {
  std::vector<int32_t> of;    // per send
  std::vector<int32_t> size;  // per run
  std::vector<int32_t> link;
};

Runs find_runs(const TacclProblem& problem, const TacclOrder& order, const Together& together) {
  const std::vector<int32_t> before = before_on_link(problem, order);
  Runs runs;
  for (size_t s = 0; s < order.sends.size(); s++) {
    if (together[s] != 0 && before[s] >= 0) {
      runs.of.push_back(runs.of[static_cast<size_t>(before[s])]);
    } else {
      runs.of.push_back(static_cast<int32_t>(runs.size.size()));
      runs.size.push_back(0);
      runs.link.push_back(order.sends[s].link);
    }
    runs.size[static_cast<size_t>(runs.of[s])]++;
  }
  return runs;
}

}  // namespace

ExactTimes exact_times(const TacclProblem& problem, const TacclOrder& order,
                       const Together& together) {
  const LogicalTopology& t = problem.topology;
  const Runs runs = find_runs(problem, order, together);
  const size_t n = runs.size.size();
  struct Wait {
    int32_t run;
    double us;
  };
  std::vector<std::vector<Wait>> next(n);
  std::vector<int32_t> waits(n, 0);
  std::vector<int32_t> last(t.resources.size(), -1);
  const auto wait = [&](int32_t run, int32_t other, double us) {
    next[static_cast<size_t>(other)].push_back({run, us});
    waits[static_cast<size_t>(run)]++;
  };
  const auto link_of = [&](int32_t run) -> const LogicalLink& {
    return t.links[static_cast<size_t>(runs.link[static_cast<size_t>(run)])];
  };
  const auto travel = [&](int32_t run) {
    return link_of(run).alpha_us +
           link_of(run).beta_us / order.parts * runs.size[static_cast<size_t>(run)];
  };
  // A run moves at the pace of the slowest resource on its link.
  const auto keeps_busy = [&](int32_t run, int32_t resource) {
    return link_of(run).busy_us +
           (link_of(run).beta_us * (runs.size[static_cast<size_t>(run)] - 1) +
            t.resources[static_cast<size_t>(resource)].beta_us) /
               order.parts;
  };
  for (size_t s = 0; s < order.sends.size(); s++) {
    const int32_t run = runs.of[s];
    if (const int32_t parent = order.sends[s].parent; parent >= 0) {
      const int32_t source = runs.of[static_cast<size_t>(parent)];
      if (source != run) wait(run, source, travel(source));
    }
    for (const int32_t r : link_of(run).resources) {
      int32_t& user = last[static_cast<size_t>(r)];
      if (user >= 0 && user != run) wait(run, user, keeps_busy(user, r));
      user = run;
    }
  }
  std::vector<int32_t> ready;
  std::vector<double> begin(n, 0.0);
  for (size_t run = 0; run < n; run++)
    if (waits[run] == 0) ready.push_back(static_cast<int32_t>(run));
  ExactTimes times;
  for (size_t i = 0; i < ready.size(); i++) {
    const auto run = static_cast<size_t>(ready[i]);
    times.time_us = std::max(times.time_us, begin[run] + travel(ready[i]));
    for (const Wait& w : next[run]) {
      auto& other = begin[static_cast<size_t>(w.run)];
      other = std::max(other, begin[run] + w.us);
      if (--waits[static_cast<size_t>(w.run)] == 0) ready.push_back(w.run);
    }
  }
  times.possible = ready.size() == n;
  for (const int32_t run : runs.of) times.begin_us.push_back(begin[static_cast<size_t>(run)]);
  return times;
}

std::vector<int32_t> joinable(const TacclProblem& problem, const TacclOrder& order) {
  const std::vector<int32_t> before = before_on_link(problem, order);
  std::vector<int32_t> result;
  for (size_t s = 0; s < order.sends.size(); s++) {
    const LogicalLink& link = problem.topology.links[static_cast<size_t>(order.sends[s].link)];
    if (link.remote && link.busy_us > 0 && before[s] >= 0)
      result.push_back(static_cast<int32_t>(s));
  }
  return result;
}

Together join_greedily(const TacclProblem& problem, const TacclOrder& order) {
  Together together(order.sends.size(), 0);
  double best = exact_times(problem, order, together).time_us;
  for (const int32_t s : joinable(problem, order)) {
    together[static_cast<size_t>(s)] = 1;
    const Runs runs = find_runs(problem, order, together);
    if (runs.size[static_cast<size_t>(runs.of[static_cast<size_t>(s)])] <= kMostTogether) {
      const ExactTimes times = exact_times(problem, order, together);
      if (times.possible && times.time_us <= best * (1 + 1e-12)) {
        best = times.time_us;
        continue;
      }
    }
    together[static_cast<size_t>(s)] = 0;
  }
  return together;
}

ContiguityModel contiguity_model(const TacclProblem& problem, const TacclOrder& order,
                                 const Together& start) {
  using Term = LinearModel::Term;
  const LogicalTopology& t = problem.topology;
  const ExactTimes times = exact_times(problem, order, start);
  const double horizon = times.time_us * 2 + 1;
  const size_t n = order.sends.size();
  ContiguityModel m;
  LinearModel& lp = m.linear;
  const auto column = [&](double value) {
    m.start.push_back(value);
    return lp.add_column(0, 0, LinearModel::kInfinity);
  };
  const int32_t time = column(times.time_us);
  lp.cost[static_cast<size_t>(time)] = 1;
  // Per send: when its message begins, when the link has taken it, when it arrives.
  std::vector<int32_t> send(n), taken(n), there(n), join(n, -1);
  const Runs runs = find_runs(problem, order, start);
  std::vector<int32_t> position(n, 0), count(runs.size.size(), 0);
  for (size_t s = 0; s < n; s++) position[s] = ++count[static_cast<size_t>(runs.of[s])];
  const auto link_of = [&](size_t s) -> const LogicalLink& {
    return t.links[static_cast<size_t>(order.sends[s].link)];
  };
  for (size_t s = 0; s < n; s++) {
    const LogicalLink& link = link_of(s);
    const double beta = link.beta_us / order.parts;
    const double begin = times.begin_us[s];
    send[s] = column(begin);
    taken[s] = column(begin + link.busy_us + beta * position[s]);
    there[s] = column(begin + link.alpha_us + beta * runs.size[static_cast<size_t>(runs.of[s])]);
    lp.at_least({{taken[s], 1}, {send[s], -1}}, link.busy_us + beta);
    lp.at_least({{there[s], 1}, {taken[s], -1}}, link.alpha_us - link.busy_us);
    lp.at_least({{time, 1}, {there[s], -1}}, 0);
    if (const int32_t parent = order.sends[s].parent; parent >= 0)
      lp.at_least({{send[s], 1}, {there[static_cast<size_t>(parent)], -1}}, 0);
  }
  const std::vector<int32_t> before = before_on_link(problem, order);
  for (const int32_t joins : joinable(problem, order)) {
    const auto s = static_cast<size_t>(joins);
    const auto b = static_cast<size_t>(before[s]);
    const double beta = link_of(s).beta_us / order.parts;
    join[s] = lp.add_binary();
    m.start.push_back(start[s]);
    m.joins.push_back(join[s]);
    // Together: they begin at once, the link takes one after the other, and all arrive with the
    // last.
    lp.at_least({{send[s], 1}, {send[b], -1}}, 0);
    lp.at_least({{send[b], 1}, {send[s], -1}, {join[s], -horizon}}, -horizon);
    lp.at_least({{taken[s], 1}, {taken[b], -1}, {join[s], -horizon}}, beta - horizon);
    lp.at_least({{there[b], 1}, {there[s], -1}, {join[s], -horizon}}, -horizon);
    std::vector<Term> run;
    size_t at = s;
    for (int k = 0; k < kMostTogether && join[at] >= 0; k++) {
      run.push_back({join[at], 1});
      at = static_cast<size_t>(before[at]);
    }
    if (run.size() == static_cast<size_t>(kMostTogether))
      lp.add_row(run, -LinearModel::kInfinity, kMostTogether - 1);
  }
  std::vector<int32_t> last(t.resources.size(), -1);
  for (size_t s = 0; s < n; s++)
    for (const int32_t r : link_of(s).resources) {
      int32_t& user = last[static_cast<size_t>(r)];
      if (user >= 0) {
        const auto u = static_cast<size_t>(user);
        std::vector<Term> terms{{send[s], 1}, {taken[u], -1}};
        if (join[s] >= 0 && before[s] == user) terms.push_back({join[s], horizon});
        // The last send leaves this resource before it leaves the slowest resource of its link.
        lp.at_least(
            std::move(terms),
            (t.resources[static_cast<size_t>(r)].beta_us - link_of(u).beta_us) / order.parts);
      }
      user = static_cast<int32_t>(s);
    }
  return m;
}

Together together_of(const TacclProblem& problem, const TacclOrder& order,
                     const ContiguityModel& model, const std::vector<double>& values) {
  Together together(order.sends.size(), 0);
  const std::vector<int32_t> sends = joinable(problem, order);
  for (size_t i = 0; i < sends.size(); i++)
    together[static_cast<size_t>(sends[i])] =
        values[static_cast<size_t>(model.joins[i])] > 0.5 ? 1 : 0;
  return together;
}

}  // namespace weft
