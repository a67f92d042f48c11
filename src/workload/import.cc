// load_graph() of import.h.
#include "src/workload/import.h"

#include <fmt/format.h>

#include "src/base/error.h"
#include "src/base/regular_file.h"
#include "src/workload/graph_json.h"
#include "src/workload/json_reader.h"

namespace weft::workload {
namespace {

constexpr size_t kMostBytes = size_t{1} << 31;

}  // namespace

Graph load_graph(const std::string& path, std::string& about, int ranks) {
  const std::string text = read_regular_file(path, kMostBytes);
  size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) fail(ncclInvalidArgument, "{}: empty", path);
  if (text[begin] != '{' && text[begin] != '[') {
    about = "Chakra execution trace";
    return graph_from_chakra(text, path, ranks);
  }
  const nlohmann::json document = parse_json(text, path);
  if (document.is_object() && document.contains("traceEvents")) {
    SeenTrace seen = graph_from_kineto(text, path);
    about = fmt::format(
        "profiler trace: {} kernels and {} collectives in {:.4g} ms; {:.4g} ms of communication "
        "without compute",
        seen.kernels, seen.collectives, seen.us * 1e-3, seen.exposed_us * 1e-3);
    return std::move(seen.graph);
  }
  if (document.is_array() || (document.is_object() && document.contains("nodes"))) {
    about = "Chakra execution trace";
    return graph_from_chakra(text, path, ranks);
  }
  return graph_from_json(text, path);
}

}  // namespace weft::workload
