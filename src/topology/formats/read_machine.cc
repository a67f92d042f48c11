// See read_machine.h.
#include "src/topology/formats/read_machine.h"

#include "src/base/error.h"
#include "src/base/regular_file.h"
#include "src/topology/formats/hwloc_xml.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/formats/nccl_xml.h"
#include "src/topology/formats/smi_matrix.h"

namespace weft {

constexpr size_t kLargestFile = 64u << 20;

std::string read_text_file(const std::string& path) {
  return read_regular_file(path, kLargestFile);
}

Machine parse_machine(std::string_view text, const std::string& where) {
  const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string_view::npos) fail(ncclInvalidArgument, "{}: is empty", where);
  if (text[first] == '{') return machine_from_json(text.substr(first), where);
  if (text[first] == '<') {
    // The first element tells the formats apart; comments and declarations may come before it.
    const size_t system = text.find("<system"), topology = text.find("<topology");
    if (topology < system) return build_machine(host_from_hwloc_xml(text, where));
    if (system != std::string_view::npos) return build_machine(host_from_nccl_xml(text, where));
    fail(ncclInvalidArgument, "{}: XML, but with neither <system> (NCCL) nor <topology> (hwloc)",
         where);
  }
  if (is_smi_matrix(text)) return machine_from_smi_matrix(text, where);
  fail(ncclInvalidArgument,
       "{}: neither Weft JSON, NCCL topology XML, hwloc XML nor 'nvidia-smi topo -m'", where);
}

Machine read_machine_file(const std::string& path) {
  Machine machine = parse_machine(read_text_file(path), path);
  if (machine.name.empty()) {
    machine.name = path.substr(path.find_last_of('/') + 1);
    machine.name.erase(std::min(machine.name.find('.'), machine.name.size()));
  }
  return machine;
}

}  // namespace weft
