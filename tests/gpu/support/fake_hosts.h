// The fixtures of tests whose processes share the GPU and act as several hosts.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/gpu/support/gpu_processes.h"
#include "tests/support/processes.h"

namespace weft::test {

// Every process is its own host, so that no memory is reached by load and store.
class TwoFakeHosts : public GpuProcesses {
 protected:
  static void play_on(int hosts, const char* scenario, int n, const std::string& argument,
                      const Environment& more = {}) {
    ProcessOptions options;
    options.limit = std::chrono::seconds(60);
    options.argument = argument;
    options.environment = [&](int process) {
      Environment all = separate_hosts(process % hosts);
      all.insert(more.begin(), more.end());
      return all;
    };
    run_ranks_as_processes(scenario, n, options);
  }
};

class FakeHosts : public TwoFakeHosts, public testing::WithParamInterface<int> {};

// A network whose NICs take GPU memory and withhold what they write there until a flush.
inline const Environment& gpu_nics() {
  static const Environment all = {{"NCCL_NET_PLUGIN", WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so"},
                                  {"NCCL_NET", "tiny11"},
                                  {"NCCL_NET_GDR_LEVEL", "SYS"},
                                  {"WEFT_TEST_NICS", "mlx5_0"},
                                  {"WEFT_TEST_NIC_GPU", "1"}};
  return all;
}

}  // namespace weft::test
