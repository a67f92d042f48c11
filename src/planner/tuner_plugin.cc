// See tuner_plugin.h.
#include "src/planner/tuner_plugin.h"

#include <dlfcn.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/planner/tuner_abi.h"
#include "src/planner/tuning_rules.h"

namespace weft {
namespace {

constexpr std::pair<CollectiveKind, int> kTunedFunctions[] = {
    {CollectiveKind::kBroadcast, tuner::kBroadcast},
    {CollectiveKind::kReduce, tuner::kReduce},
    {CollectiveKind::kAllGather, tuner::kAllGather},
    {CollectiveKind::kReduceScatter, tuner::kReduceScatter},
    {CollectiveKind::kAllReduce, tuner::kAllReduce},
};

using Costs = std::array<std::array<float, kNcclProtocols>, kNcclAlgorithms>;
constexpr float kNotThere = -1;

// NCCL's levels: 2 warns, 3 informs.
void log_for_plugin(int level, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (level == 2) {
    WEFT_WARN("TUNER: {}", text.data());
  } else if (level > 2) {
    WEFT_INFO(kTuning, "TUNER: {}", text.data());
  }
}

struct Question {
  int function;
  size_t bytes;
};

// Hides the versions of the ABI: starts with a context, answers with changed costs.
class Tuner {
 public:
  virtual ~Tuner() = default;
  virtual const char* name() const = 0;
  virtual ncclResult_t begin(size_t ranks, size_t nodes, uint64_t communicator) = 0;
  virtual ncclResult_t ask(const Question& question, Costs& costs) = 0;
  virtual void end() = 0;
};

float** rows(Costs& costs) { return reinterpret_cast<float**>(costs.data()); }

template <typename Table>
class VersionedTuner final : public Tuner {
 public:
  explicit VersionedTuner(const Table& table) : table_(table) {}
  const char* name() const override { return table_.name; }

  ncclResult_t begin(size_t ranks, size_t nodes, uint64_t communicator) override {
    if constexpr (std::is_same_v<Table, tuner::V5>) {
      tuner::NvlDomain domain{static_cast<int>(nodes), static_cast<int>(ranks / nodes),
                              static_cast<int>(ranks / nodes)};
      constants_ = std::make_unique<tuner::Constants>();
      return table_.init(&context_, communicator, ranks, nodes, log_for_plugin, &domain,
                         constants_.get());
    } else {
      return table_.init(ranks, nodes, log_for_plugin, &context_);
    }
  }

  ncclResult_t ask(const Question& q, Costs& costs) override {
    int channels = 0;
    if constexpr (std::is_same_v<Table, tuner::V2>) {
      int algorithm = -1, protocol = -1;
      const ncclResult_t result =
          table_.get(context_, q.function, q.bytes, 0, 0, 1, &algorithm, &protocol, &channels);
      if (algorithm >= 0 && algorithm < kNcclAlgorithms)
        for (float& cost : costs[static_cast<size_t>(algorithm)])
          if (cost != kNotThere) cost = 0;
      return result;
    } else if constexpr (std::is_same_v<Table, tuner::V3>) {
      return table_.get(context_, q.function, q.bytes, 1, rows(costs), kNcclAlgorithms,
                        kNcclProtocols, &channels);
    } else {
      return table_.get(context_, q.function, q.bytes, 1, rows(costs), kNcclAlgorithms,
                        kNcclProtocols, 0, &channels);
    }
  }

  void end() override {
    if constexpr (std::is_same_v<Table, tuner::V5>) {
      table_.finalize(context_);
    } else {
      table_.destroy(context_);
    }
  }

 private:
  const Table& table_;
  void* context_ = nullptr;
  std::unique_ptr<tuner::Constants> constants_;
};

template <typename Table>
std::unique_ptr<Tuner> tuner_of(void* library, const char* symbol) {
  const auto* table = static_cast<const Table*>(dlsym(library, symbol));
  return table == nullptr ? nullptr : std::make_unique<VersionedTuner<Table>>(*table);
}

// Tries the name as it is. If it is no file name, tries libnccl-tuner-NAME.so too.
void* open_plugin(const std::optional<std::string>& named, std::string& why) {
  const auto open = [&](const std::string& path) {
    void* library = path == "STATIC_PLUGIN" ? dlopen(nullptr, RTLD_NOW | RTLD_LOCAL)
                                            : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (const char* text = library == nullptr ? dlerror() : nullptr; text != nullptr) why = text;
    return library;
  };
  if (!named || named->empty()) return open("libnccl-tuner.so");
  if (void* library = open(*named); library != nullptr) return library;
  const bool file = named->find('/') != std::string::npos ||
                    (named->starts_with("lib") && named->ends_with(".so"));
  return file ? nullptr : open("libnccl-tuner-" + *named + ".so");
}

std::unique_ptr<Tuner> find_tuner(const Config& config) {
  if (config.tuner_plugin == "none") return nullptr;
  std::string why;
  void* library = open_plugin(config.tuner_plugin, why);  // never closed
  if (library == nullptr) {
    if (config.tuner_plugin && !config.tuner_plugin->empty())
      WEFT_WARN("NCCL_TUNER_PLUGIN={}: {}", *config.tuner_plugin, why);
    return nullptr;
  }
  for (const char* symbol : {"ncclTunerPlugin_v6", "ncclTunerPlugin_v5"})
    if (auto tuner = tuner_of<tuner::V5>(library, symbol)) return tuner;
  if (auto tuner = tuner_of<tuner::V4>(library, "ncclTunerPlugin_v4")) return tuner;
  if (auto tuner = tuner_of<tuner::V3>(library, "ncclTunerPlugin_v3")) return tuner;
  if (auto tuner = tuner_of<tuner::V2>(library, "ncclTunerPlugin_v2")) return tuner;
  if (config.tuner_plugin)
    WEFT_WARN("NCCL_TUNER_PLUGIN={}: it has no tuner of versions 2 to 6", *config.tuner_plugin);
  return nullptr;
}

// The option for an algorithm at a size: the cheapest of its family.
int cheapest_of(const SelectionTable& table, CollectiveKind kind, NcclAlgorithm algorithm,
                double bytes) {
  int best = -1;
  for (size_t o = 0; o < table.options.size(); o++) {
    const PlanOption& option = table.options[o];
    if (option.kind != kind || option.schedule >= 0 || !option.barred.empty() ||
        option.us.empty() || !is_of(algorithm, option.name))
      continue;
    if (best < 0 || SelectionTable::estimate(option, bytes) <
                        SelectionTable::estimate(table.options[static_cast<size_t>(best)], bytes))
      best = static_cast<int>(o);
  }
  return best;
}

// The plugin's answer for one collective and size: an option, or -1 if it changes nothing.
int ask_once(Tuner& tuner, const SelectionTable& table, CollectiveKind kind, int function,
             size_t bytes) {
  Costs costs, before;
  std::array<int, kNcclAlgorithms> options;
  for (int a = 0; a < kNcclAlgorithms; a++) {
    const auto row = static_cast<size_t>(a);
    options[row] =
        cheapest_of(table, kind, static_cast<NcclAlgorithm>(a), static_cast<double>(bytes));
    const double us = options[row] < 0 ? kNotThere
                                       : SelectionTable::estimate(
                                             table.options[static_cast<size_t>(options[row])],
                                             static_cast<double>(bytes));
    costs[row].fill(static_cast<float>(us));
  }
  before = costs;
  if (tuner.ask({function, bytes}, costs) != ncclSuccess || costs == before) return -1;
  int best = -1;
  float least = std::numeric_limits<float>::max();
  for (size_t a = 0; a < costs.size(); a++)
    for (const float cost : costs[a])
      if (options[a] >= 0 && cost >= 0 && cost < least) {
        least = cost;
        best = options[a];
      }
  return best;
}

}  // namespace

void ask_tuner(const Config& config, int nranks, int hosts, uint64_t communicator,
               SelectionTable& table) {
  const std::unique_ptr<Tuner> tuner = find_tuner(config);
  if (tuner == nullptr) return;
  if (tuner->begin(static_cast<size_t>(nranks), static_cast<size_t>(hosts), communicator) !=
      ncclSuccess) {
    WEFT_WARN("tuner plugin {} could not be initialized: it is not used", tuner->name());
    return;
  }
  int differ = 0;
  for (const auto& [kind, function] : kTunedFunctions) {
    if (table.ranges(kind).empty()) continue;
    int changed = 0;
    std::vector<SelectionTable::Range> ranges;
    for (int power = 8; power <= 32; power++) {
      const auto bytes = uint64_t{1} << power;
      const int wanted = ask_once(*tuner, table, kind, function, bytes);
      const PlanOption* ours = table.choose(kind, bytes, false);
      const int option = wanted >= 0 ? wanted : static_cast<int>(ours - table.options.data());
      changed += wanted >= 0 && &table.options[static_cast<size_t>(wanted)] != ours ? 1 : 0;
      const uint64_t most = power == 32 ? std::numeric_limits<uint64_t>::max() : bytes * 2 - 1;
      if (!ranges.empty() && ranges.back().option == option) {
        ranges.back().most_bytes = most;
      } else {
        ranges.push_back({most, option});
      }
    }
    if (changed > 0) table.set_ranges(kind, std::move(ranges));
    differ += changed;
  }
  tuner->end();
  table.origin += fmt::format("; tuner plugin {} changes {} choices", tuner->name(), differ);
}

}  // namespace weft
