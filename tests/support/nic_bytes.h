// Bytes that ranks as processes send over the tests' plugin "tiny11", which counts them
// (tests/net/plugins/tiny_plugin.cc).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace weft::test {

// What the scenario sends to other hosts, all ranks together, on a machine of that name. `hosts`:
// the host of each rank.
inline double nic_bytes(const char* scenario, const std::string& argument, const std::string& topo,
                        const std::vector<int>& hosts,
                        const std::map<std::string, std::string>& more = {}) {
  const int ranks = static_cast<int>(hosts.size());
  const auto file = [](int rank) {
    return testing::TempDir() + "weft-bytes-" + std::to_string(getpid()) + "-" +
           std::to_string(rank);
  };
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  options.argument = argument;
  options.environment = [&](int rank) {
    std::map<std::string, std::string> all = {
        {"NCCL_HOSTID", "host" + std::to_string(hosts[static_cast<size_t>(rank)])},
        {"NCCL_NET_PLUGIN", WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so"},
        {"NCCL_NET", "tiny11"},
        {"WEFT_TOPO", topo},
        {"WEFT_SYNTHESIS_SECONDS", "20"},  // the same plans, however busy the machine is
        {"WEFT_TEST_NICS", "nic0"},
        {"WEFT_TEST_NIC_BYTES", file(rank)}};
    all.insert(more.begin(), more.end());
    return all;
  };
  run_ranks_as_processes(scenario, ranks, options);
  double sum = 0;
  for (int rank = 0; rank < ranks; rank++) {
    double bytes = -1e18;
    std::ifstream(file(rank)) >> bytes;
    sum += bytes;
    unlink(file(rank).c_str());
  }
  return sum;
}

}  // namespace weft::test
