// The catalogue: its names, the bounds that its machines must reproduce, and their expected texts.
#include "algorithms/catalogue/catalogue.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "src/topology/formats/machine_json.h"
#include "src/topology/formats/nccl_xml.h"
#include "src/topology/formats/read_machine.h"
#include "src/topology/graph/fingerprint.h"
#include "src/topology/views/view.h"
#include "tests/support/environment.h"
#include "tests/topology/machines.h"

namespace weft::test {
namespace {

struct Bound {
  const char* topo;
  double gbps;
};

class KnownBound : public testing::TestWithParam<Bound> {};

TEST_P(KnownBound, IsReproduced) {
  EXPECT_NEAR(gather_bound(load_machine(GetParam().topo)), GetParam().gbps, 0.006);
}

INSTANTIATE_TEST_SUITE_P(Catalogue, KnownBound,
                         testing::Values(Bound{"dgx1v", 171.43}, Bound{"ndv2", 171.43},
                                         Bound{"ndv2-taccl", 149.07}, Bound{"ndv2x2", 25.00},
                                         Bound{"ndv2-tacclx2", 19.05}, Bound{"ndv2x4", 16.67},
                                         Bound{"dgx2", 160.00}, Bound{"dgx2-teccl", 133.33},
                                         Bound{"dgx2x2", 167.74}, Bound{"dgx2-tecclx2", 141.94},
                                         Bound{"dgx-a100", 342.86}, Bound{"dgx-a100x2", 346.67},
                                         Bound{"dgx-a100x4", 266.67}, Bound{"dgx-h100", 514.29},
                                         Bound{"dgx-h100x2", 533.33}, Bound{"dgx-h100x4", 516.13},
                                         Bound{"mi250", 342.86}, Bound{"mi250x2", 354.13}),
                         [](const auto& instance) {
                           std::string name = instance.param.topo;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Catalogue, HasTheMachinesPeopleAskFor) {
  const auto names = catalogue_names();
  for (const char* name :
       {"dgx1v", "ndv2", "ndv2-taccl", "dgx2", "dgx2-teccl", "dgx-a100", "dgx-h100", "hgx-h200",
        "dgx-b200", "gb200-nvl72", "mi250", "mi300x", "pcie-4x", "pcie-8x", "pcie-8x-1nic",
        "l20-8x", "rtx4090-8x", "rtx4090-4x"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  for (const auto& name : names) EXPECT_GT(gpus(load_machine(name)).size(), 0u) << name;
}

TEST(Catalogue, MachinesAreSeenAsWrittenDown) {
  for (const char* name :
       {"dgx1v", "hgx-h200", "pcie-8x-1nic", "rtx4090-8x", "gb200-nvl72", "ndv2x2"})
    expect_text(std::string("catalogue-") + name, machine_text(load_machine(name)));
}

TEST(Catalogue, BoxesOfPcieAreTheSameAfterADumpInNcclsFormat) {
  for (const char* name :
       {"pcie-4x", "pcie-8x", "pcie-8x-1nic", "l20-8x", "rtx4090-8x", "rtx4090-4x"}) {
    const Machine machine = load_machine(name);
    const Machine again = parse_machine(machine_to_nccl_xml(machine), "dump");
    EXPECT_EQ(fingerprint_text(machine), fingerprint_text(again)) << name;
  }
}

TEST(Catalogue, MachinesAreEqualAfterJson) {
  for (const auto& name : catalogue_names()) {
    const Machine machine = load_machine(name);
    EXPECT_TRUE(machine == machine_from_json(machine_to_json(machine), "again")) << name;
  }
}

TEST(Catalogue, SaysWhatItKnowsWhenANameIsWrong) {
  const std::string text = error_of([] { load_machine("dgx9"); });
  EXPECT_NE(text.find("dgx9: neither a file nor a machine of the catalogue"), std::string::npos);
  EXPECT_NE(text.find("dgx1v"), std::string::npos);
  EXPECT_NE(error_of([] { load_machine("dgx2x99999"); }).find("more than"), std::string::npos);
  EXPECT_NE(error_of([] { load_machine("dgx2x"); }), "");
  EXPECT_NE(error_of([] { load_machine(""); }), "");
}

TEST(Catalogue, AFolderGoesBeforeWhatIsBuiltIn) {
  std::string name = (std::filesystem::temp_directory_path() / "weft-catalogue-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name;
  std::ofstream(folder / "dgx1v.json")
      << R"({"nodes": [{"id": "g0", "type": "gpu"}], "links": []})";
  std::ofstream(folder / "pair.json") << R"({"hosts": [{"machine": "ndv2", "count": 2}]})";
  const ScopedEnvironment environment{{"WEFT_CATALOGUE", folder.string()}};
  EXPECT_EQ(load_machine("dgx1v").nodes.size(), 1u);
  EXPECT_EQ(gpus(load_machine("pair")).size(), 16u);
  EXPECT_EQ(gpus(load_machine("pairx2")).size(), 32u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::test
