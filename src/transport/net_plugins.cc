// See net_plugins.h.
#include "src/transport/net_plugins.h"

#include <dlfcn.h>
#include <strings.h>

#include <mutex>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/own_folder.h"

namespace weft {
namespace {

bool is_library_name(const std::string& name) {
  return name.rfind("lib", 0) == 0 && name.size() > 6 && name.substr(name.size() - 3) == ".so";
}

bool same_name(const std::string& a, const std::string& b) {
  return strcasecmp(a.c_str(), b.c_str()) == 0;
}

std::shared_ptr<void> open_library(const std::vector<std::string>& files, std::string& why) {
  for (const std::string& file : files) {
    void* library = dlopen(file.empty() ? nullptr : file.c_str(), RTLD_NOW | RTLD_LOCAL);
    // Never closed: a plugin may have threads, and the next communicator uses it again.
    if (library != nullptr) return {library, [](void*) {}};
    const char* error = dlerror();
    why += (why.empty() ? "" : "; ") + std::string(error == nullptr ? file.c_str() : error);
  }
  return nullptr;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// Tries the candidates, and remembers why each was passed over.
class Search {
 public:
  explicit Search(const NetRequest& request) : request_(request) {}

  // nullptr: not this table. `alias`: another name that users know it by.
  std::shared_ptr<Network> try_table(const NetTable& table, const std::string& label,
                                     const char* alias) {
    const std::string& wanted = request_.net_name;
    if (!wanted.empty() && !same_name(wanted, table.name) && !same_name(wanted, alias)) {
      pass_over(label, fmt::format("its name is {}, not {}", table.name, wanted));
      return nullptr;
    }
    try {
      auto network = table.open(request_.comm_id, request_.traffic_class);
      network->properties(0);
      WEFT_INFO(kNet, "network {} (ABI v{}, {} devices) from {}", network->name(),
                network->version(), network->devices(), label);
      return network;
    } catch (const Error& error) {
      pass_over(label, error.what());
      return nullptr;
    }
  }
  std::shared_ptr<Network> try_files(const std::string& label,
                                     const std::vector<std::string>& files, const char* alias) {
    std::string why;
    const auto library = open_library(files, why);
    if (library == nullptr) {
      pass_over(label, why);
      return nullptr;
    }
    const NetTable table = find_table(library);
    if (!table.name.empty()) return try_table(table, label, alias);
    pass_over(label, "it exports no ncclNetPlugin_v8 to _v12");
    return nullptr;
  }
  void pass_over(const std::string& label, const std::string& why) {
    WEFT_INFO(kNet, "network plugin {} not used: {}", label, why);
    passed_ += fmt::format("{}{}: {}", passed_.empty() ? "" : "; ", label, why);
  }
  const std::string& passed() const { return passed_; }

 private:
  const NetRequest& request_;
  std::string passed_;
};

}  // namespace

NetRequest net_request(const Config& config, const char* config_net_name) {
  NetRequest request;
  request.plugins_given = config.net_plugin.has_value();
  request.plugins = config.net_plugin.value_or("");
  if (same_name(request.plugins, "none")) request.plugins.clear();
  request.net_name = !config.net.empty()          ? config.net
                     : config_net_name != nullptr ? config_net_name
                                                  : "";
  request.verbs = !config.ib_disable;
  return request;
}

std::vector<std::string> plugin_files(const std::string& name, const std::string& beside) {
  if (name == "STATIC_PLUGIN") return {""};
  std::vector<std::string> files = {name};
  if (name.find('/') != std::string::npos) return files;
  const std::string file = is_library_name(name) ? name : "libnccl-net-" + name + ".so";
  if (file != name) files.push_back(file);
  if (!beside.empty()) {
    files.push_back(beside + file);
    files.push_back(beside + "plugins/" + file);
  }
  return files;
}

std::shared_ptr<Network> choose_network(const NetRequest& request, const NetTable& built_in) {
  static std::mutex mutex;  // plugins' init functions are not thread-safe
  std::lock_guard lock(mutex);
  const std::string folder = own_folder();
  Search search(request);
  const auto external = split(request.plugins_given ? request.plugins : "libnccl-net.so");
  for (size_t i = 0; i < external.size(); i++) {
    if (i + 2 >= net_abi::kMaxPlugins) {
      search.pass_over(external[i], "NCCL_NET_PLUGIN takes 14 plugins");
      continue;
    }
    // The default plugin is found by the loader's search path only, not beside this library.
    if (auto network = search.try_files(
            external[i], plugin_files(external[i], request.plugins_given ? folder : ""), ""))
      return network;
  }
  if (request.verbs)
    if (auto network = search.try_files("weft-verbs", plugin_files("weft-verbs", folder), "IB"))
      return network;
  if (auto network = search.try_table(built_in, "the built-in one", "Socket")) return network;
  fail(ncclInvalidUsage, "no network can be used: {}", search.passed());
}

}  // namespace weft
