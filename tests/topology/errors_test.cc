// Bad files give an error of one line that says what and where. Also unusual but valid files.
#include <gtest/gtest.h>

#include "src/topology/formats/read_machine.h"
#include "src/topology/graph/fingerprint.h"
#include "tests/topology/machines.h"

namespace weft::test {
namespace {

std::string error_in(const std::string& text) {
  const std::string error = error_of([&] { parse_machine(text, "file"); });
  EXPECT_EQ(error.compare(0, 5, "file:"), 0) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error;
}

TEST(BadFiles, OfNoKnownFormatAreNamed) {
  EXPECT_EQ(error_in(""), "file: is empty");
  EXPECT_NE(error_in("hello").find("neither Weft JSON, NCCL topology XML, hwloc XML nor"),
            std::string::npos);
  EXPECT_NE(error_in("<html/>").find("neither <system> (NCCL) nor <topology> (hwloc)"),
            std::string::npos);
  EXPECT_NE(
      error_of([] { read_machine_file("/no/such/file"); }).find("/no/such/file: cannot be opened"),
      std::string::npos);
  EXPECT_NE(error_of([] { read_machine_file("/"); }).find("is a folder"), std::string::npos);
}

TEST(BadFiles, InJsonNameTheElement) {
  EXPECT_NE(error_in("{").find("not JSON"), std::string::npos);
  EXPECT_EQ(error_in("{}"), "file: 'nodes' is missing");
  EXPECT_EQ(error_in(R"({"nodes": 3, "links": []})"), "file: 'nodes' must be a list");
  EXPECT_EQ(error_in(R"({"nodes": [7], "links": []})"), "file: node 0: not an object");
  EXPECT_EQ(error_in(R"({"nodes": [{"id": "a", "type": "tpu"}], "links": []})"),
            "file: node 0 ('a'): type 'tpu' is none of gpu, cpu, switch, nic");
  EXPECT_EQ(
      error_in(
          R"({"nodes": [{"id": "a", "type": "gpu"}, {"id": "a", "type": "gpu"}], "links": []})"),
      "file: node 1: there are two nodes with id 'a'");
  const std::string nodes =
      R"({"nodes": [{"id": "a", "type": "gpu"}, {"id": "b", "type": "gpu"}], "links": [)";
  EXPECT_EQ(error_in(nodes + R"({"from": "a", "to": "c", "gbps": 1}]})"),
            "file: link 0: 'to' names 'c', but there is no such node");
  EXPECT_EQ(error_in(nodes + R"({"from": "a", "to": "a", "gbps": 1}]})"),
            "file: link 0: leads from 'a' to itself");
  EXPECT_EQ(error_in(nodes + R"({"from": "a", "to": "b"}]})"), "file: link 0: 'gbps' is missing");
  EXPECT_EQ(error_in(nodes + R"({"from": "a", "to": "b", "gbps": 0}]})"),
            "file: link 0: 'gbps' must be above 0");
  EXPECT_NE(error_in(nodes + R"({"from": "a", "to": "b", "gbps": -1}]})"), "");
  EXPECT_NE(error_in(nodes + R"({"from": "a", "to": "b", "gbps": 1e99}]})"), "");
}

TEST(BadFiles, InXmlNameLineAndElement) {
  EXPECT_NE(error_in("<system version='1'>\n<cpu").find("file: line 2: not XML"),
            std::string::npos);
  EXPECT_EQ(error_in("<system/>"),
            "file: line 1: <system>: needs version=\"1\" (NCCL) or version=\"2\" (RCCL)");
  EXPECT_EQ(error_in("<system version='1'>\n\n  <cpu/></system>"),
            "file: line 3: <cpu>: numaid is missing");
  EXPECT_EQ(error_in("<system version='1'><cpu numaid='x'/></system>"),
            "file: line 1: <cpu>: numaid=\"x\" is not a number");
  EXPECT_EQ(error_in("<system version='1'><cpu numaid='0'/>\n<cpu numaid='0'/></system>"),
            "file: line 2: <cpu>: there are two with numaid 0");
  const std::string cpu = "<system version='1'><cpu numaid='0'>\n";
  EXPECT_EQ(error_in(cpu + "<pci/></cpu></system>"), "file: line 2: <pci>: busid is missing");
  EXPECT_EQ(error_in(cpu + "<pci busid='1'/><pci busid='1'/></cpu></system>"),
            "file: line 2: <pci>: there are two with busid 1");
  EXPECT_EQ(error_in(cpu + "<pci busid='1'><gpu><nvlink/></gpu></pci></cpu></system>"),
            "file: line 2: <nvlink>: target is missing");
  EXPECT_EQ(
      error_in("<topology>\n</topology>"),
      "file: line 1: <topology>: this is hwloc's format 1; lstopo of hwloc 2 writes format 2");
  std::string deep = cpu;
  for (int i = 0; i < 200; i++) deep += "<pci busid='" + std::to_string(i) + "'>";
  for (int i = 0; i < 200; i++) deep += "</pci>";
  EXPECT_NE(error_in(deep + "</cpu></system>").find("is nested too deep"), std::string::npos);
}

TEST(NcclXml, ReadsRcclsVersion2WithXgmi) {
  const Machine machine = parse_machine(
      R"(<system version="2"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:c1:00.0" class="0x038000" vendor="0x1002" device="0x7408" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" gcn="910" arch="38911" rank="0" gdr="1"><xgmi target="0000:c6:00.0" count="4" tclass="0x038000"/></gpu></pci>
    <pci busid="0000:c6:00.0" class="0x038000" vendor="0x1002" device="0x7408" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" gcn="910" arch="38911" rank="1" gdr="1"><xgmi target="0000:c1:00.0" count="4" tclass="0x038000"/></gpu></pci>
    </cpu></system>)",
      "rccl");
  ASSERT_EQ(gpus(machine).size(), 2u);
  const auto xgmi = std::find_if(machine.links.begin(), machine.links.end(),
                                 [](const Link& link) { return link.type == LinkType::kXgmi; });
  ASSERT_NE(xgmi, machine.links.end());
  EXPECT_EQ(xgmi->count, 4);
  EXPECT_DOUBLE_EQ(xgmi->gbps, 144);
}

TEST(NcclXml, BelievesNoNonsense) {
  const Machine machine = parse_machine(R"(<!-- a VM's -->
    <system version="1"><cpu numaid="-1" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:00:01.0" class="0x060400" link_speed="2.5 GT/s PCIe" link_width="1">
      <pci busid="0000:01:00.0" class="0x030200" link_speed="32 GT/s PCIe/s" link_width="0">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu></pci>
      <pci busid="0000:02:00.0" class="0x030200" link_speed="" link_width="">
        <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu></pci>
    </pci><nic><net name="eth0" dev="0" speed="-1"/></nic></cpu></system>)",
                                        "vm");
  const std::vector<std::string> expected = {
      "cpu: says NUMA node -1 (unknown), taken as node 0",
      "eth0: speed unknown, taken as 10 Gb/s (as NCCL does)",
      "0000:01:00.0: says 32 GT/s and width 0, taken as 32 GT/s x16 (what such GPUs have)",
      "0000:02:00.0: says no link speed and no width, taken as 32 GT/s x16 (what such GPUs have)",
      "0000:00:01.0: bridge says 2.5 GT/s x1, taken as 32 GT/s x16 like the fastest device below",
      "0000:01:00.0, 0000:02:00.0: NVLinks lead to a device that this virtual machine cannot see, "
      "taken as NVSwitch"};
  EXPECT_EQ(machine.notes, expected);
}

TEST(SmiMatrix, BecomesAGraph) {
  const std::string text =
      "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
      "GPU0\t X \tNV4\tPXB\tSYS\tPIX\t0-15\t0\t\tN/A\n"
      "GPU1\tNV4\t X \tPXB\tSYS\tPIX\t0-15\t0\t\tN/A\n"
      "GPU2\tPXB\tPXB\t X \tSYS\tPXB\t0-15\t0\t\tN/A\n"
      "GPU3\tSYS\tSYS\tSYS\t X \tSYS\t16-31\t1\t\tN/A\n"
      "NIC0\tPIX\tPIX\tPXB\tSYS\t X \n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: "
      "mlx5_0\n";
  expect_text("smi-matrix", [&] {
    const Machine machine = parse_machine(text, "smi");
    std::string out;
    for (const auto& node : machine.nodes) out += node.id + " ";
    for (const auto& link : machine.links)
      if (link.from < link.to)
        out += "\n" + machine.nodes[link.from].id + " " + machine.nodes[link.to].id + " " +
               std::string(name_of(link.type));
    return out + "\n";
  }());
  EXPECT_NE(error_in("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4\n")
                .find("line 3: 2 columns are expected, here are 1"),
            std::string::npos);
  EXPECT_NE(error_in("GPU0 GPU1\nGPU0 X NV4\n").find("the matrix has 1 rows"), std::string::npos);
}

}  // namespace
}  // namespace weft::test
