// Fuzzes the reader of the matrix of nvidia-smi topo -m.
#include "src/topology/formats/smi_matrix.h"
#include "tests/fuzz/topology_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  return test::check_reader(
      data, size, [](std::string_view text) { return machine_from_smi_matrix(text, "input"); });
}
