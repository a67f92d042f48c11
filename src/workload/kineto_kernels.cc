// See kineto_kernels.h.
#include "src/workload/kineto_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "src/base/error.h"
#include "src/workload/json_reader.h"

namespace weft::workload {
namespace {

using json = nlohmann::json;

double element_size(const std::string& dtype) {
  if (dtype == "Double" || dtype == "Long") return 8;
  if (dtype == "Half" || dtype == "BFloat16" || dtype == "Short") return 2;
  if (dtype == "Byte" || dtype == "Char" || dtype == "Bool" || dtype.starts_with("Float8"))
    return 1;
  return 4;
}

// PyTorch's names; false: nothing that moves data between ranks.
bool kind_of(std::string name, CollectiveKind& kind) {
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  constexpr std::pair<std::string_view, CollectiveKind> kNames[] = {
      {"allreduce", CollectiveKind::kAllReduce},
      {"allgather", CollectiveKind::kAllGather},
      {"reducescatter", CollectiveKind::kReduceScatter},
      {"alltoall", CollectiveKind::kAllToAll},
      {"broadcast", CollectiveKind::kBroadcast},
      {"reduce", CollectiveKind::kReduce},
      {"gather", CollectiveKind::kGather},
      {"scatter", CollectiveKind::kScatter}};
  for (const auto& [text, value] : kNames)
    if (name.starts_with(text)) {
      kind = value;
      return true;
    }
  return false;
}

double as_number(const json& value) {
  double number = 0;
  if (value.is_number()) number = value.get<double>();
  if (value.is_string()) number = std::strtod(value.get<std::string>().c_str(), nullptr);
  if (!(std::abs(number) <= 1e18))
    fail(ncclInvalidArgument, "the trace has a number that is no number: {}", value.dump());
  return number;
}

std::vector<int> ranks_in(const json& args, int world) {
  std::vector<int> ranks;
  if (args.contains("Process Group Ranks") && args["Process Group Ranks"].is_string()) {
    const std::string text = args["Process Group Ranks"];
    for (size_t i = 0; i < text.size() && text.find("...") == std::string::npos;) {
      char* end = nullptr;
      const long rank = std::strtol(text.c_str() + i, &end, 10);
      if (end == text.c_str() + i) {
        i++;
        continue;
      }
      if (rank >= 0 && rank < world) ranks.push_back(static_cast<int>(rank));
      i = static_cast<size_t>(end - text.c_str());
    }
  }
  const auto size = static_cast<size_t>(args.contains("Group size") ? as_number(args["Group size"])
                                                                    : static_cast<double>(world));
  if (ranks.size() == size && size > 0) return ranks;
  ranks.resize(std::clamp<size_t>(size, 1, static_cast<size_t>(world)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class KinetoReader {
 public:
  KinetoReader(std::string_view text, const std::string& where)
      : where_(where), document_(parse_json(text, where)) {
    if (const auto it = document_.find("distributedInfo"); it != document_.end())
      if (it->is_object() && it->contains("world_size"))
        world_ = static_cast<int>(std::clamp(as_number((*it)["world_size"]), 1.0, 65536.0));
    read_host();
    read_kernels();
    keep_a_step();
    if (kernels_.empty()) fail(ncclInvalidArgument, "{}: the trace has no kernels of a GPU", where);
  }

  KinetoStep step() const { return {world_, kernels_}; }

 private:
  static const json& args_of(const json& event) {
    static const json kNone = json::object();
    const auto it = event.find("args");
    return it == event.end() ? kNone : *it;
  }

  // When kernels were launched, what collectives the host called, and where steps begin.
  void read_host() {
    for (const json& event : document_["traceEvents"]) {
      if (!event.is_object() || event.value("ph", "") != "X") continue;
      const std::string cat = event.value("cat", ""), name = event.value("name", "");
      const json& args = args_of(event);
      if (cat == "cuda_runtime" || cat == "cuda_driver") {
        if (args.contains("correlation"))
          launched_[as_number(args["correlation"])] = as_number(event["ts"]);
      } else if (name == "record_param_comms" && args.contains("External id")) {
        comms_[as_number(args["External id"])] = args;
      } else if (cat == "user_annotation" && name.starts_with("ProfilerStep#")) {
        steps_.emplace_back(as_number(event["ts"]),
                            as_number(event["ts"]) + as_number(event["dur"]));
      }
    }
  }

  void read_kernels() {
    for (const json& event : document_["traceEvents"]) {
      if (!event.is_object() || event.value("ph", "") != "X") continue;
      const std::string cat = event.value("cat", "");
      if (cat != "kernel" && cat != "gpu_memcpy" && cat != "gpu_memset") continue;
      if (!event.contains("ts") || !event.contains("dur"))
        fail(ncclInvalidArgument, "{}: kernel '{}' has no time", where_, event.value("name", ""));
      const json& args = args_of(event);
      Kernel kernel;
      kernel.begin = as_number(event["ts"]);
      kernel.end = kernel.begin + as_number(event["dur"]);
      if (kernel.end < kernel.begin)
        fail(ncclInvalidArgument, "{}: kernel '{}' has a negative time", where_,
             event.value("name", ""));
      kernel.launched = kernel.begin;
      if (args.contains("correlation"))
        if (const auto it = launched_.find(as_number(args["correlation"])); it != launched_.end())
          kernel.launched = it->second;
      if (args.contains("stream")) kernel.stream = static_cast<int>(as_number(args["stream"]));
      take_collective(event, args, kernel);
      if (!kernel.comm || !continues(args, kernel)) kernels_.push_back(std::move(kernel));
    }
    std::stable_sort(kernels_.begin(), kernels_.end(),
                     [](const Kernel& a, const Kernel& b) { return a.begin < b.begin; });
  }

  // One call may launch several kernels and copies: they are one collective.
  bool continues(const json& args, const Kernel& kernel) {
    if (!args.contains("External id")) return false;
    const auto [it, fresh] = of_call_.emplace(as_number(args["External id"]), kernels_.size());
    if (fresh) return false;
    Kernel& first = kernels_[it->second];
    first.begin = std::min(first.begin, kernel.begin);
    first.end = std::max(first.end, kernel.end);
    first.launched = std::min(first.launched, kernel.launched);
    return true;
  }

  void take_collective(const json& event, const json& args, Kernel& kernel) {
    const json* about = args.contains("Collective name") ? &args : nullptr;
    if (about == nullptr && args.contains("External id"))
      if (const auto it = comms_.find(as_number(args["External id"])); it != comms_.end())
        about = &it->second;
    const std::string name = event.value("name", "");
    if (about == nullptr) {
      kernel.comm = name.starts_with("nccl");
      if (kernel.comm)
        fail(ncclInvalidArgument,
             "{}: kernel '{}' does not say what it communicates; the profiler of PyTorch 2.2 or "
             "newer writes it",
             where_, name.substr(0, 60));
      return;
    }
    const std::string called = about->value("Collective name", "");
    kernel.comm = kind_of(called, kernel.kind);
    if (!kernel.comm && name.starts_with("nccl"))
      fail(ncclInvalidArgument,
           "{}: kernel '{}' is '{}': the trace of one rank does not say its peer's order; only "
           "collectives are imported",
           where_, name.substr(0, 60), called.substr(0, 60));
    if (!kernel.comm) return;
    const double in = about->contains("In msg nelems") ? as_number((*about)["In msg nelems"]) : 0;
    const double out =
        about->contains("Out msg nelems") ? as_number((*about)["Out msg nelems"]) : 0;
    kernel.bytes = std::max(in, out) * element_size(about->value("dtype", ""));
    kernel.ranks = ranks_in(*about, world_);
  }

  // The last step that the host marked, if it marked some.
  void keep_a_step() {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      std::vector<Kernel> mine;
      for (const Kernel& kernel : kernels_)
        if (kernel.launched >= step->first && kernel.launched < step->second)
          mine.push_back(kernel);
      if (mine.empty()) continue;
      kernels_ = std::move(mine);
      return;
    }
  }

  const std::string where_;
  json document_;
  int world_ = 1;
  std::map<double, double> launched_;  // by correlation
  std::map<double, json> comms_;       // by external id
  std::vector<std::pair<double, double>> steps_;
  std::vector<Kernel> kernels_;
  std::map<double, size_t> of_call_;  // the collective of an external id
};

}  // namespace

KinetoStep read_kineto(std::string_view text, const std::string& where) {
  try {
    return KinetoReader(text, where).step();
  } catch (const json::exception& error) {  // a member of another type
    fail(ncclInvalidArgument, "{}: not a trace of the PyTorch profiler: {}", where, error.what());
  }
}

}  // namespace weft::workload
