// Files of machines. expected/ holds the text for each machine. Ours are in tests/data. Files of
// real machines are outside the repository; without them their tests are skipped.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "src/topology/formats/nccl_xml.h"
#include "src/topology/formats/read_machine.h"
#include "src/topology/graph/fingerprint.h"
#include "src/topology/views/view.h"
#include "tests/support/require.h"
#include "tests/topology/machines.h"

namespace weft::test {
namespace {

// NCCL's own reader accepts no XML declaration, at most 16 attributes of 255 characters, and only
// these speeds. It needs the attributes listed.
void expect_valid_for_nccl(const std::string& xml) {
  const bool rccl = xml.find("<xgmi ") != std::string::npos;
  EXPECT_EQ(xml.substr(0, 20), rccl ? "<system version=\"2\">" : "<system version=\"1\">");
  static const std::map<std::string, std::vector<std::string>> needed = {
      {"cpu", {"numaid"}},
      {"pci", {"busid", "class", "link_speed", "link_width"}},
      {"gpu", {"dev", "rank"}},
      {"nvlink", {"target", "count", "tclass"}},
      {"net", {"name", "dev", "speed", "port", "guid", "maxconn", "gdr"}}};
  static const std::set<std::string> speeds = {"2.5 GT/s PCIe",  "5.0 GT/s PCIe",
                                               "8.0 GT/s PCIe",  "16.0 GT/s PCIe",
                                               "32.0 GT/s PCIe", "64.0 GT/s PCIe"};
  std::istringstream lines(xml);
  for (std::string line; std::getline(lines, line);) {
    const auto open = line.find('<');
    ASSERT_NE(open, std::string::npos) << line;
    const std::string name = line.substr(open + 1, line.find_first_of(" />", open + 1) - open - 1);
    std::map<std::string, std::string> attributes;
    for (size_t at = line.find("=\""); at != std::string::npos; at = line.find("=\"", at + 2)) {
      const auto begin = line.rfind(' ', at) + 1, end = line.find('"', at + 2);
      attributes[line.substr(begin, at - begin)] = line.substr(at + 2, end - at - 2);
    }
    EXPECT_LE(attributes.size(), 16u) << line;
    for (const auto& [key, value] : attributes) EXPECT_LE(value.size(), 255u) << line;
    if (const auto list = needed.find(name); list != needed.end()) {
      for (const auto& key : list->second) EXPECT_EQ(attributes.count(key), 1u) << key << line;
    }
    if (attributes.count("link_speed") > 0) {
      EXPECT_EQ(speeds.count(attributes["link_speed"]), 1u) << line;
    }
  }
}

std::string name_of(const std::string& path) {
  return path.substr(path.find('/') + 1, path.find('.') - path.find('/') - 1);
}

void expect_same_after_dump(const std::string& path) {
  const Machine machine = read_machine_file(path);
  const std::string dump = machine_to_nccl_xml(machine);
  expect_valid_for_nccl(dump);
  const Machine again = parse_machine(dump, "dump");
  EXPECT_EQ(fingerprint_text(machine), fingerprint_text(again));
  EXPECT_EQ(machine.links.size(), again.links.size());
}

class OurMachine : public testing::TestWithParam<const char*> {
 protected:
  static std::string path() { return std::string(WEFT_TEST_DATA "/machines/") + GetParam(); }
};

TEST_P(OurMachine, IsSeenAsWrittenDown) {
  expect_text(name_of(GetParam()), machine_text(read_machine_file(path())));
}

TEST_P(OurMachine, IsTheSameGraphAfterADumpInNcclsFormat) { expect_same_after_dump(path()); }

INSTANTIATE_TEST_SUITE_P(Files, OurMachine,
                         testing::Values("nccl/mesh_4x.xml", "nccl/nvswitch_4x.xml",
                                         "nccl/pair_1nic.xml", "nccl/superchip_2x.xml",
                                         "nccl/virtual_3x.xml", "nccl/xgmi_4x.xml",
                                         "hwloc/no_gpu.xml", "hwloc/nvswitch_v100_4x.xml"));

// NVLinks into a CPU have no form in NCCL's format.
TEST(OurMachines, ThatHaveNvlinksIntoTheCpuAreSeenAsWrittenDown) {
  const std::string path = WEFT_TEST_DATA "/machines/hwloc/cpu_nvlink_2x.xml";
  expect_text("cpu_nvlink_2x", machine_text(read_machine_file(path)));
}

class RealMachine : public testing::TestWithParam<const char*> {};

TEST_P(RealMachine, IsSeenAsWrittenDown) {
  const std::string path = shared_machine(GetParam());
  if (path.empty()) WEFT_SKIP("shared", "no ../shared/machines beside the repository");
  expect_text(name_of(GetParam()), machine_text(read_machine_file(path)));
}

TEST_P(RealMachine, IsTheSameGraphAfterADumpInNcclsFormat) {
  const std::string path = shared_machine(GetParam());
  if (path.empty()) WEFT_SKIP("shared", "no ../shared/machines beside the repository");
  if (name_of(GetParam()) == "power8gpudistances")
    GTEST_SKIP() << "NVLinks into a CPU have no form in NCCL's format";
  expect_same_after_dump(path);
}

INSTANTIATE_TEST_SUITE_P(
    Files, RealMachine,
    testing::Values("nccl/aws_p4d-24xl-topo.xml", "nccl/azure_ncv4-topo.xml",
                    "nccl/azure_ndv2-topo.xml", "nccl/azure_ndv4-topo.xml",
                    "nccl/nccl_8x3090_2plx_1nic.xml", "nccl/nccl_yccl_topo_h800.xml",
                    "nccl/nccl_yccl_topo_mod.xml", "nccl/oci_H100-topology.xml",
                    "nccl/simai_topo_8A100_4CX6.xml", "hwloc/96em64t-4n4d3ca2co-pci.xml",
                    "hwloc/nvidiaDGX2.xml", "hwloc/power8gpudistances.xml"));

}  // namespace
}  // namespace weft::test
