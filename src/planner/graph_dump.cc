// See graph_dump.h.
#include "src/planner/graph_dump.h"

#include <filesystem>
#include <map>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/planner/cached_file.h"
#include "src/planner/proved_schedules.h"

namespace weft {
namespace {

constexpr size_t kMostLinks = 4096;                 // of a plan; more are only counted
constexpr int kRingPattern = 4, kOtherPattern = 0;  // NCCL has no number for others

// Who sends to whom, by channel. Peer memory has channel 0.
std::map<int, std::set<std::pair<int, int>>> links_of(const Schedule& schedule) {
  std::map<int, std::set<std::pair<int, int>>> links;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); rank++)
    for (const Lane& lane : schedule.ranks[static_cast<size_t>(rank)].lanes)
      for (const Step& step : lane.steps) {
        for (const Operand& from : step.from)
          if (from.kind == Operand::Kind::kRemote && step.count > 0 && from.owner != rank)
            links[0].insert({from.owner, rank});
        for (const Operand& to : step.to) {
          if (step.count == 0) continue;
          if (to.kind == Operand::Kind::kPeer) links[to.channel].insert({rank, to.index});
          if (to.kind == Operand::Kind::kRemote && to.owner != rank)
            links[0].insert({rank, to.owner});
        }
      }
  return links;
}

// All ranks from 0 on, if every rank has one successor and these form one ring.
std::vector<int> ring_of(const std::set<std::pair<int, int>>& links, size_t nranks) {
  if (links.size() != nranks || nranks < 2) return {};
  const std::map<int, int> next(links.begin(), links.end());
  if (next.size() != nranks) return {};
  std::vector<int> ring;
  std::set<int> seen;
  for (int at = 0; seen.insert(at).second;) {
    if (at >= static_cast<int>(nranks)) return {};  // a CPU node
    ring.push_back(at);
    const auto found = next.find(at);
    if (found == next.end()) return {};
    at = found->second;
  }
  if (ring.size() != nranks) return {};
  return ring;
}

std::shared_ptr<const VerifiedSchedule> schedule_of(const PlanChooser& chooser,
                                                    const Choice& choice, const Collective& c) {
  if (choice.schedule != nullptr) return choice.schedule->out_of_place;
  if (choice.generator == nullptr) return nullptr;
  return ProvedSchedules::instance().get(*choice.generator, c, false, chooser.placement().hosts);
}

// A range of sizes with one plan.
struct Range {
  Choice choice;
  size_t least = 0, most = 0;
};
std::vector<Range> ranges_of(const PlanChooser& chooser, const Collective& c) {
  std::vector<Range> ranges;
  for (int i = 0; i < SelectionTable::kSizes; i++) {
    const auto bytes = static_cast<size_t>(SelectionTable::size(i));
    Choice choice;
    try {
      choice = chooser.choose(PlanCall::of_floats(c, bytes));
    } catch (const Error&) {
      continue;  // a forced plan that cannot do this collective
    }
    if (!ranges.empty() && ranges.back().choice.generator == choice.generator &&
        ranges.back().choice.schedule == choice.schedule &&
        ranges.back().choice.path == choice.path) {
      ranges.back().most = bytes;
    } else {
      ranges.push_back({choice, bytes, bytes});
    }
  }
  return ranges;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string channels_to_xml(const Schedule& schedule, const std::vector<std::string>& gpus) {
  std::string text;
  for (const std::vector<int>& ring : rings_of(schedule)) {
    text += "    <channel>\n";
    for (const int rank : ring) {
      const std::string& gpu = gpus[static_cast<size_t>(rank)];
      text += fmt::format("      <gpu rank=\"{}\"{}/>\n", rank,
                          gpu.empty() ? "" : fmt::format(" busid=\"{}\"", gpu));
    }
    text += "    </channel>\n";
  }
  if (!text.empty()) return text;
  size_t count = 0;
  const auto links = links_of(schedule);
  for (const auto& [channel, pairs] : links) count += pairs.size();
  if (count > kMostLinks) return fmt::format("    <links count=\"{}\"/>\n", count);
  for (const auto& [channel, pairs] : links)
    for (const auto& [from, to] : pairs)
      text += fmt::format("    <link channel=\"{}\" from=\"{}\" to=\"{}\"/>\n", channel, from, to);
  return text;
}

}  // namespace

std::vector<std::vector<int>> rings_of(const Schedule& schedule) {
  const auto nranks = static_cast<size_t>(schedule.collective.nranks);
  std::vector<std::vector<int>> rings;
  for (const auto& [channel, links] : links_of(schedule)) {
    rings.push_back(ring_of(links, nranks));
    if (rings.back().empty()) return {};
  }
  return rings;
}

std::string graphs_to_xml(const PlanChooser& chooser, const std::vector<std::string>& gpus) {
  const int nranks = static_cast<int>(gpus.size());
  std::string text = "<graphs version=\"1\">\n";
  for (size_t kind = 0; kind < kCollectiveKinds && nranks > 1; kind++) {
    const Collective c{static_cast<CollectiveKind>(kind), nranks, 0};
    if (c.kind == CollectiveKind::kSendRecv) continue;
    for (const Range& range : ranges_of(chooser, c)) {
      const auto proved = schedule_of(chooser, range.choice, c);
      if (proved == nullptr) continue;
      const Schedule& schedule = proved->schedule();
      const size_t rings = rings_of(schedule).size();
      text += fmt::format(
          "  <graph id=\"{}\" pattern=\"{}\" nchannels=\"{}\" collective=\"{}\" plan=\"{}\" "
          "path=\"{}\" minbytes=\"{}\" maxbytes=\"{}\">\n",
          rings > 0 ? 0 : 1, rings > 0 ? kRingPattern : kOtherPattern, rings, name(c.kind),
          escaped(range.choice.name), name_of(range.choice.path), range.least, range.most);
      text += channels_to_xml(schedule, gpus) + "  </graph>\n";
    }
  }
  return text + "</graphs>\n";
}

void dump_graphs(const Config& config, const PlanChooser& chooser, int rank,
                 const std::vector<std::string>& gpus) noexcept {
  if (config.graph_dump_file.empty() || rank != config.graph_dump_rank) return;
  try {
    const auto path = std::filesystem::absolute(config.graph_dump_file);
    // Renaming a file to the name of a device would replace it.
    if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
      fail(ncclInvalidUsage, "{} is no regular file", path.string());
    write_cached(path.string(), graphs_to_xml(chooser, gpus));
  } catch (const std::exception& error) {
    try {
      WEFT_WARN("NCCL_GRAPH_DUMP_FILE cannot be written: {}", error.what());
    } catch (...) {
      return;
    }
  }
}

}  // namespace weft
