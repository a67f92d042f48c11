// See catalogue.h.
#include "algorithms/catalogue/catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/formats/read_machine.h"
#include "src/topology/graph/network.h"

namespace weft {
namespace {

constexpr int kMostHosts = 4096;
constexpr int kDeepest = 8;  // levels of cluster descriptions inside cluster descriptions

Machine load(const std::string& topo, int depth);

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Machine read_any(const std::string& path, int depth) {
  const std::string text = read_text_file(path);
  if (!is_cluster_json(text)) return read_machine_file(path);
  // Look for files beside the description first.
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  return cluster_from_json(text, path, [&](const std::string& name) {
    return load(exists(folder + name) ? folder + name : name, depth + 1);
  });
}

std::optional<Machine> by_name(const std::string& name, int depth) {
  const std::string folder = Config::from_environment().catalogue;
  if (!folder.empty() && name.find('/') == std::string::npos) {
    const std::string path = fmt::format("{}/{}.json", folder, name);
    if (exists(path)) {
      Machine machine = read_any(path, depth);
      machine.name = name;
      return machine;
    }
  }
  for (const auto& entry : catalogue_texts()) {
    if (entry.name != name) continue;
    Machine machine = machine_from_json(entry.json, "catalogue: " + name);
    machine.name = name;
    return machine;
  }
  return std::nullopt;
}

Machine load(const std::string& topo, int depth) {
  if (depth > kDeepest) fail(ncclInvalidArgument, "{}: clusters of clusters go too deep", topo);
  if (exists(topo) && !std::filesystem::is_directory(topo)) return read_any(topo, depth);
  if (auto machine = by_name(topo, depth)) return *machine;
  if (const auto x = topo.find_last_of('x'); x != std::string::npos && x + 1 < topo.size()) {
    int count = 0;
    const char* end = topo.data() + topo.size();
    const auto [rest, error] = std::from_chars(topo.data() + x + 1, end, count);
    if (error == std::errc() && rest == end && count > 0) {
      if (count > kMostHosts) fail(ncclInvalidArgument, "{}: more than {} hosts", topo, kMostHosts);
      if (auto machine = by_name(topo.substr(0, x), depth)) return replicate(*machine, count);
    }
  }
  fail(ncclInvalidArgument,
       "{}: neither a file nor a machine of the catalogue ({}; xN behind it for N hosts)",
       topo.substr(0, 200), fmt::join(catalogue_names(), ", "));
}

}  // namespace

std::vector<std::string> catalogue_names() {
  std::set<std::string> names;
  for (const auto& entry : catalogue_texts()) names.emplace(entry.name);
  std::error_code ignored;
  const std::string folder = Config::from_environment().catalogue;
  if (!folder.empty())
    for (const auto& file : std::filesystem::directory_iterator(folder, ignored))
      if (file.path().extension() == ".json") names.insert(file.path().stem());
  return {names.begin(), names.end()};
}

Machine load_machine(const std::string& topo) { return load(topo, 0); }

}  // namespace weft
