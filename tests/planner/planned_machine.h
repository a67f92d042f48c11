// Plans for a machine with one rank per GPU, as `weft explain --gpus` makes them.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "src/comm/rank_config.h"
#include "src/tools/asked_ranks.h"
#include "src/tools/explain_gpus.h"

namespace weft::test {

class PlannedMachine {
 public:
  PlannedMachine(Machine machine, const std::string& synthesis_seconds, Config config = {}) {
    config.cache.clear();
    config.synthesis_seconds = std::stod(synthesis_seconds);
    asked_.machine = std::move(machine);
    asked_.ranks = static_cast<int>(gpus(asked_.machine).size());
    asked_.hosts = std::max(1, count_hosts(asked_.machine));
    asked_.cores = 64;
    asked_.on_gpus = asked_.own_gpus = asked_.elsewhere = true;
    asked_.config = rank_config(config, asked_.ranks, true);
    chooser_ = plans_of(asked_);
  }

  int ranks() const { return asked_.ranks; }
  const Machine& machine() const { return asked_.machine; }
  const PlanChooser& chooser() const { return *chooser_; }
  GpuExplanation explained() const { return {*chooser_, asked_.machine, 32}; }

 private:
  AskedRanks asked_;
  std::unique_ptr<const PlanChooser> chooser_;
};

}  // namespace weft::test
