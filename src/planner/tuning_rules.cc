// See tuning_rules.h.
#include "src/planner/tuning_rules.h"

#include <algorithm>
#include <cctype>

#include "src/base/error.h"
#include "src/planner/selection.h"

namespace weft {
namespace {

struct NcclName {
  std::string_view name;
  int number;
};
constexpr NcclName kAlgorithmNames[] = {{"tree", 0},         {"ring", 1}, {"collnetdirect", 2},
                                        {"collnetchain", 3}, {"nvls", 4}, {"nvlstree", 5},
                                        {"pat", 6}};
constexpr NcclName kProtocolNames[] = {{"ll", 0}, {"ll128", 1}, {"simple", 2}};

// NCCL writes function names without underscores.
constexpr std::pair<std::string_view, CollectiveKind> kFunctions[] = {
    {"broadcast", CollectiveKind::kBroadcast}, {"reduce", CollectiveKind::kReduce},
    {"allgather", CollectiveKind::kAllGather}, {"reducescatter", CollectiveKind::kReduceScatter},
    {"allreduce", CollectiveKind::kAllReduce},
};

std::vector<std::string> split_text(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <size_t N>
unsigned parse_names(const char* variable, std::string list, const NcclName (&names)[N]) {
  const unsigned all = (1u << N) - 1;
  const bool inverted = !list.empty() && list[0] == '^';
  if (inverted) list.erase(0, 1);
  unsigned bits = 0;
  for (const std::string& word : split_text(list, ',')) {
    const auto* it = std::find_if(std::begin(names), std::end(names),
                                  [&](const NcclName& known) { return known.name == word; });
    if (it == std::end(names)) {
      std::string known;
      for (const NcclName& n : names) known += (known.empty() ? "" : ", ") + std::string(n.name);
      fail(ncclInvalidUsage, "{}: '{}' is none of {}", variable, word, known);
    }
    bits |= 1u << it->number;
  }
  return inverted ? all & ~bits : bits;
}

template <size_t N>
NcclChoice parse_choice(const char* variable, std::string text, const NcclName (&names)[N]) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::erase(text, ' ');
  NcclChoice choice;
  choice.allowed.fill((1u << N) - 1);
  for (const std::string& part : split_text(text, ';')) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      const unsigned bits = parse_names(variable, part, names);
      for (const auto& [function, kind] : kFunctions)
        choice.allowed[static_cast<size_t>(kind)] = bits;
      continue;
    }
    const std::string function = part.substr(0, colon);
    const auto* it = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                  [&](const auto& known) { return known.first == function; });
    if (it == std::end(kFunctions))
      fail(ncclInvalidUsage, "{}: '{}' is no function of NCCL's", variable, function);
    choice.allowed[static_cast<size_t>(it->second)] =
        parse_names(variable, part.substr(colon + 1), names);
  }
  return choice;
}

constexpr unsigned kAllAlgorithms = (1u << kNcclAlgorithms) - 1;

// Users who leave the choice open get generators of no family, too.
bool nccl_algo_allows(const NcclChoice& algorithms, CollectiveKind kind,
                      std::string_view generator) {
  for (int a = 0; a < kNcclAlgorithms; a++)
    if (algorithms.allows(kind, a) && is_of(static_cast<NcclAlgorithm>(a), generator)) return true;
  return algorithms.allowed[static_cast<size_t>(kind)] == kAllAlgorithms;
}

// The generator that a schedule of ordered_plans.h is a general form of; "": none. NCCL's rings
// follow the machine, too, so NCCL_ALGO=Ring must not leave only the ring of rank numbers.
std::string_view general_form_of(std::string_view schedule) {
  if (schedule == "ordered_ring") return kRing.name;
  if (schedule == "ordered_chain") return kChain.name;
  return "";
}

}  // namespace

bool is_of(NcclAlgorithm algorithm, std::string_view generator) {
  switch (algorithm) {
    case NcclAlgorithm::kRings:
      return generator == kRing.name;
    case NcclAlgorithm::kTrees:
    case NcclAlgorithm::kNvlsTree:
      return generator == kTree.name || generator == kRecursive.name ||
             generator == kHalving.name || generator == kChain.name;
    case NcclAlgorithm::kPat:
      return generator == kRecursive.name || generator == kPairwise.name;
    default:
      return generator == kDirect.name || generator == kOneShot.name ||
             generator == kOneRound.name || generator == kMultiConnection.name ||
             generator == kPeerMemory.name;
  }
}

NcclChoice parse_nccl_algo(const std::string& text) {
  return parse_choice("NCCL_ALGO", text, kAlgorithmNames);
}

NcclChoice parse_nccl_proto(const std::string& text) {
  return parse_choice("NCCL_PROTO", text, kProtocolNames);
}

TuningRules TuningRules::from(const Config& config) {
  TuningRules rules;
  rules.algorithms = parse_nccl_algo(config.algo);
  rules.protocols = parse_nccl_proto(config.proto);
  rules.plan = config.plan;
  rules.max_channels = config.max_channels;
  return rules;
}

std::string TuningRules::bars_generator(CollectiveKind kind, std::string_view generator) const {
  if (const Generator* forced = forced_generator(kind, plan); forced != nullptr)
    return forced->name == generator ? "" : fmt::format("WEFT_PLAN asks for {}", forced->name);
  return nccl_algo_allows(algorithms, kind, generator) ? "" : "NCCL_ALGO";
}

std::string TuningRules::bars_schedule(CollectiveKind kind, std::string_view schedule,
                                       int channels) const {
  if (const Generator* forced = forced_generator(kind, plan); forced != nullptr)
    return fmt::format("WEFT_PLAN asks for {}", forced->name);
  if (!nccl_algo_allows(algorithms, kind, general_form_of(schedule))) return "NCCL_ALGO";
  if (max_channels > 0 && channels > max_channels) return "NCCL_MAX_NCHANNELS";
  return "";
}

}  // namespace weft
