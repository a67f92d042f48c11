// Fuzzes the reader of Weft JSON, machines and clusters.
#include "src/topology/formats/machine_json.h"
#include "tests/fuzz/topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_reader(data, size, [](std::string_view text) {
    if (!is_cluster_json(text)) return machine_from_json(text, "input");
    return cluster_from_json(text, "input", [](const std::string&) { return Machine{}; });
  });
}
