// NVLink discovery without a GPU. A fake driver library serves machines, old and broken ones too.
#include "src/topology/sources/nvml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "src/topology/graph/network.h"
#include "src/topology/graph/paths.h"
#include "src/topology/sources/visibility.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

NvmlReport read(const std::string& description, const char* library = WEFT_FAKE_NVML_NEW) {
  const ScopedEnvironment environment{{"WEFT_FAKE_NVML", description}};
  return read_nvml(library);
}

Machine machine_of(const std::string& description, const char* library = WEFT_FAKE_NVML_NEW) {
  Host host;
  host.cpus.push_back({0, {}});
  apply_nvml(host, read(description, library));
  return build_machine(host);
}

bool has_note(const Machine& machine, const std::string& text) {
  for (const auto& note : machine.notes)
    if (note.find(text) != std::string::npos) return true;
  return false;
}

const Link* link_between(const Machine& machine, const char* from, const char* to) {
  for (const auto& link : machine.links)
    if (machine.nodes[link.from].id == from && machine.nodes[link.to].id == to) return &link;
  return nullptr;
}

TEST(Nvml, FindsLinksBetweenGpusAndTheirCounts) {
  const Machine machine = machine_of(
      "gpu 0000:06:00.0 70\nlink 0000:07:00.0*2\nlink 0000:0a:00.0\n"
      "gpu 0000:07:00.0 70\nlink 0000:06:00.0*2\n"
      "gpu 0000:0a:00.0 70\nlink 0000:06:00.0\n");
  ASSERT_EQ(gpus(machine).size(), 3u);
  const Link* twin = link_between(machine, "g0", "g1");
  ASSERT_NE(twin, nullptr);
  EXPECT_EQ(twin->count, 2);
  EXPECT_DOUBLE_EQ(twin->gbps, 40);
  ASSERT_NE(link_between(machine, "g2", "g0"), nullptr);
  EXPECT_EQ(link_between(machine, "g2", "g0")->count, 1);
  EXPECT_EQ(link_between(machine, "g1", "g2"), nullptr);
  EXPECT_EQ(paths(machine, 1, 2)[0].path_class, PathClass::kNvlinkRelay);
  EXPECT_EQ(fact(machine.nodes[0], "uuid"), "GPU-0000");
}

TEST(Nvml, JoinsLinksToSeveralNvswitchesIntoOneFabric) {
  const Machine machine = machine_of(
      "gpu 0000:06:00.0 90\nlink 0000:c0:00.0*9 switch\nlink 0000:c1:00.0*9 switch\n"
      "gpu 0000:07:00.0 90\nlink 0000:c1:00.0*9 switch\nlink 0000:c0:00.0*9 switch\n");
  const Link* up = link_between(machine, "g0", "nvs");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->count, 18);
  EXPECT_NEAR(up->gbps, 370.8, 1e-9);
  EXPECT_EQ(best_path(machine, 0, 1).path_class, PathClass::kNvlink);
}

TEST(Nvml, KnowsFabricsOfSeveralHosts) {
  const auto tray = [](const char* more) {
    Machine machine =
        machine_of(fmt::format("gpu 0000:06:00.0 100 {0}\nlink 0000:c0:00.0*18 switch\n"
                               "gpu 0000:07:00.0 100 {0}\nlink 0000:c0:00.0*18 switch\n",
                               more));
    machine.name = "tray";
    return machine;
  };
  const Machine rack = replicate(tray("fabric"), 3);
  EXPECT_EQ(best_path(rack, find_node(rack, "h0.g0"), find_node(rack, "h2.g1")).path_class,
            PathClass::kNvlink);
  EXPECT_EQ(rack.nodes[find_node(rack, "h0.nvs")].host, -1);
  EXPECT_EQ(find_node(rack, "h1.nvs"), -1);
  const Machine apart = replicate(tray(""), 2);
  EXPECT_EQ(best_path(apart, find_node(apart, "h0.g0"), find_node(apart, "h1.g1")).path_class,
            PathClass::kNone);
}

TEST(Nvml, TakesHiddenEndsForNvswitchAndSaysSo) {
  const Machine machine =
      machine_of("gpu 0000:06:00.0 80\nlink x*12 hidden\ngpu 0000:07:00.0 80\nlink x*12 hidden\n");
  ASSERT_NE(link_between(machine, "g1", "nvs"), nullptr);
  EXPECT_EQ(link_between(machine, "g1", "nvs")->count, 12);
  EXPECT_TRUE(has_note(machine, "cannot see, taken as NVSwitch"));
}

TEST(Nvml, CountsOnlyLinksThatAreUp) {
  const Machine machine = machine_of(
      "gpu 0000:06:00.0 80\nlink 0000:07:00.0*3\nlink 0000:07:00.0 down\n"
      "gpu 0000:07:00.0 80\nlink 0000:06:00.0*3\nlink 0000:06:00.0 down\n");
  EXPECT_EQ(link_between(machine, "g0", "g1")->count, 3);
  EXPECT_TRUE(has_note(machine, "0000:06:00.0: 1 NVLinks are down"));
}

TEST(Nvml, SaysWhereTwoEndsDisagree) {
  const Machine machine = machine_of(
      "gpu 0000:06:00.0 80\nlink 0000:07:00.0*4\ngpu 0000:07:00.0 80\nlink 0000:06:00.0*3\n");
  EXPECT_EQ(link_between(machine, "g0", "g1")->count, 3);
  EXPECT_TRUE(has_note(machine, "g0 reports 4 links to g1, which reports 3: 3 are used"));
}

TEST(Nvml, SkipsLinksAndGpusThatFail) {
  const Machine machine = machine_of(
      "gpu 0000:06:00.0 80\nlink 0000:07:00.0*2\nlink 0000:07:00.0 broken\n"
      "gpu 0000:07:00.0 80\nlink 0000:06:00.0*2\ngpu 0000:08:00.0 80 lost\n");
  EXPECT_EQ(gpus(machine).size(), 2u);
  EXPECT_EQ(link_between(machine, "g0", "g1")->count, 2);
  EXPECT_TRUE(has_note(machine, "GPU 2 of NVML is left out: the GPU has fallen off the bus"));
}

TEST(Nvml, WorksWithOldDriversThatLackFunctions) {
  const Machine machine = machine_of(
      "gpu 0000:06:00.0 70\nlink 0000:07:00.0*2\nlink 0000:c0:00.0*4 switch\n"
      "gpu 0000:07:00.0 70\nlink 0000:06:00.0*2\nlink 0000:c0:00.0*4 switch\n",
      WEFT_FAKE_NVML_OLD);
  EXPECT_EQ(link_between(machine, "g0", "g1")->count, 2);
  // This driver cannot tell the kind of a remote device. Weft takes any device that is not our GPU
  // for a switch, and notes that.
  EXPECT_EQ(link_between(machine, "g0", "nvs")->count, 4);
  EXPECT_TRUE(has_note(machine, "of an unknown kind, taken as NVSwitch"));
  EXPECT_TRUE(has_note(machine, "taken as 8 GT/s x16 (what such GPUs have)"));
}

TEST(Nvml, ReportsADriverThatDoesNotStart) {
  const NvmlReport report = read("init 9");
  EXPECT_FALSE(report.present);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_NE(report.notes[0].find("the driver is not loaded"), std::string::npos);
  EXPECT_FALSE(read("count 999\ngpu 0000:06:00.0 80").present);
  EXPECT_FALSE(read_nvml("libno-such-nvml.so").present);
  EXPECT_TRUE(read("").present);
}

TEST(Nvml, KnowsMigAndMissingPeerAccess) {
  const Machine mig =
      machine_of("gpu 0000:06:00.0 80 mig\nlink 0000:07:00.0*12\ngpu 0000:07:00.0 80\n");
  EXPECT_EQ(fact(mig.nodes[0], "p2p"), "0");
  EXPECT_EQ(link_between(mig, "g0", "g1"), nullptr);
  EXPECT_TRUE(has_note(mig, "in MIG mode"));
  const Machine blind = machine_of("gpu 0000:06:00.0 89\ngpu 0000:07:00.0 89\nnop2p\n");
  EXPECT_EQ(fact(blind.nodes[1], "p2p"), "0");
  EXPECT_EQ(best_path(blind, 0, 1).path_class, PathClass::kHostBridge);
}

TEST(Nvml, LeavesOutWhatVisibleDevicesHides) {
  const std::string four =
      "gpu 0000:06:00.0 80\ngpu 0000:07:00.0 80\ngpu 0000:0a:00.0 80\ngpu 0000:0b:00.0 80\n";
  const auto visible = [&](const char* value) {
    Host host;
    host.cpus.push_back({0, {}});
    apply_nvml(host, read(four));
    apply_visible_devices(host, value, true);
    const Machine machine = build_machine(host);
    std::string found;
    for (const int gpu : gpus(machine)) found += machine.nodes[gpu].pci.substr(5, 2) + " ";
    return found;
  };
  EXPECT_EQ(visible("2,0"), "0a 06 ");
  EXPECT_EQ(visible("GPU-0003,1"), "0b 07 ");
  EXPECT_EQ(visible("1,9,2"), "07 ");  // CUDA stops at an index that it does not know
  EXPECT_EQ(visible(""), "");
  EXPECT_EQ(visible("1,1"), "07 ");
  EXPECT_EQ(visible("-1"), "");
}

}  // namespace
}  // namespace weft::test
