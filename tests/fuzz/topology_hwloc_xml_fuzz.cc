// Fuzzes the reader of hwloc's XML.
#include "src/topology/formats/hwloc_xml.h"
#include "tests/fuzz/topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_reader(data, size, [](std::string_view text) {
    return build_machine(host_from_hwloc_xml(text, "input"));
  });
}
