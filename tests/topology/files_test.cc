// Files of real machines: what we see in each is written down in expected/. They stay where they
// are, beside the repository; without them these tests are skipped.
#include <gtest/gtest.h>

#include "src/topology/fingerprint.h"
#include "src/topology/nccl_xml.h"
#include "src/topology/read_machine.h"
#include "src/topology/view.h"
#include "tests/support/require.h"
#include "tests/topology/machines.h"

namespace weft::test {
namespace {

class RealMachine : public testing::TestWithParam<const char*> {
 protected:
  std::string name() const {
    const std::string path = GetParam();
    return path.substr(path.find('/') + 1, path.find('.') - path.find('/') - 1);
  }
};

TEST_P(RealMachine, IsSeenAsWrittenDown) {
  const std::string path = shared_machine(GetParam());
  if (path.empty()) WEFT_SKIP("shared", "no ../shared/machines beside the repository");
  expect_text(name(), machine_text(read_machine_file(path)));
}

TEST_P(RealMachine, IsTheSameGraphAfterADumpInNcclsFormat) {
  const std::string path = shared_machine(GetParam());
  if (path.empty()) WEFT_SKIP("shared", "no ../shared/machines beside the repository");
  if (name() == "power8gpudistances")
    GTEST_SKIP() << "NVLinks into a CPU have no form in NCCL's format";
  const Machine machine = read_machine_file(path);
  const Machine again = parse_machine(machine_to_nccl_xml(machine), "dump");
  EXPECT_EQ(fingerprint_text(machine), fingerprint_text(again));
  EXPECT_EQ(machine.links.size(), again.links.size());
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
