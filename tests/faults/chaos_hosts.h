// The hosts of a random run between network namespaces, and the network between them, which fails.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "tests/faults/chaos_plan.h"
#include "tests/faults/stage.h"
#include "tests/net/namespaces.h"

namespace weft::test {

// One thread makes it, starts the run and destroys it.
class ChaosHosts {
 public:
  // When the victim marks the fault, its host's network fails as the plan says.
  ChaosHosts(const ChaosPlan& plan, Stage& stage);
  ~ChaosHosts();
  ChaosHosts(const ChaosHosts&) = delete;
  ChaosHosts& operator=(const ChaosHosts&) = delete;

  // Calls `start` on the rank's host.
  void place(int rank, const std::function<void()>& start);

 private:
  int host(int rank) const;
  void strike();

  const ChaosPlan& plan_;
  Stage& stage_;
  Hosts hosts_;
  std::atomic<bool> over_{false};
  std::thread watcher_;
};

// Why there are no such runs here. Empty if there can be.
std::string namespaces_obstacle();
// The environment of a rank.
std::map<std::string, std::string> namespace_environment(const ChaosPlan& plan, int rank);

}  // namespace weft::test
