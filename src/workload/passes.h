// Passes rewrite a workload so that less communication is exposed. Each tries rewritings, checks
// them, runs their timelines, and keeps the best. What it tried is part of the answer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/workload/comm_cost.h"
#include "src/workload/graph.h"
#include "src/workload/timeline.h"

namespace weft::workload {

struct Tried {
  std::string pass, what;
  double us = 0, exposed_us = 0;
  bool taken = false;
};

// The state that passes work on. Not thread-safe.
class Search {
 public:
  // The graph needs its origins (set_origins()). Both must outlive the search.
  Search(const Graph& original, CommCosts& costs);

  // Checks and times a rewriting of best(), and takes it if it is faster. Returns whether it is. An
  // order in which operations wait for each other in a circle is left out with a note; a rewriting
  // that does something else than the original is an error.
  bool offer(const Graph& graph, const std::string& what);
  // Takes it although it is not faster, because a later rewriting needs it. `us` must not be longer
  // than `slack` times the best.
  bool offer_with_slack(const Graph& graph, const std::string& what, double slack);
  void note(const std::string& text) { notes_.push_back(text); }
  void begin_pass(const std::string& name) { pass_ = name; }

  const Graph& original() const { return original_; }
  const Graph& best() const { return best_; }
  const Timeline& timeline() const { return timeline_; }
  const std::vector<Tried>& tried() const { return tried_; }
  const std::vector<std::string>& notes() const { return notes_; }
  CommCosts& costs() { return costs_; }
  std::vector<int> host_of_rank() const;

 private:
  const Graph& original_;
  CommCosts& costs_;
  Graph best_;
  Timeline timeline_;
  std::string pass_;
  std::vector<Tried> tried_;
  std::vector<std::string> notes_;
};

struct Pass {
  const char* name;
  const char* summary;
  void (*run)(Search& search);
};
std::span<const Pass> passes();
// nullptr: there is none.
const Pass* find_pass(std::string_view name);

// Defined in files of their names.
void pass_centauri(Search& search);
void pass_lancet(Search& search);
void pass_megatron(Search& search);
void pass_chain(Search& search);
void pass_fisher(Search& search);
void pass_terapipe(Search& search);

}  // namespace weft::workload
