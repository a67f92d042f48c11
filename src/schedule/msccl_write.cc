// The writer of MSCCL XML. It writes several XML steps if the format needs them: for a copy that is
// also sent, and for a local reduction into a third place. It refuses all else that MSCCL lacks.
#include <algorithm>
#include <limits>
#include <vector>

#include "src/base/error.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_graph.h"

namespace weft {
namespace {

// Limits of the runtimes' parsers.
constexpr int kMostBlockSteps = 256;  // of a thread block
constexpr int kMostBlocks = 216;      // of a GPU
constexpr int kMostChannels = 32;
constexpr int kMostBlocksOfChannel = 32;
constexpr int kMostCount = 72;

std::string_view coll_name(CollectiveKind kind, MscclDialect dialect) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "allreduce";
    case CollectiveKind::kAllGather:
      return "allgather";
    case CollectiveKind::kReduceScatter:
      return dialect == MscclDialect::kLegacy ? "reduce_scatter" : "reducescatter";
    case CollectiveKind::kAllToAll:
      return "alltoall";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return dialect == MscclDialect::kLegacy ? "" : "gather";
    case CollectiveKind::kScatter:
      return dialect == MscclDialect::kLegacy ? "" : "scatter";
    case CollectiveKind::kSendRecv:
    case CollectiveKind::kAllToAllV:
      return "";
  }
  return "";
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&' || c == '<' || c == '>' || c == '"' || static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("&#{};", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// One <step> of the file.
struct XmlStep {
  const char* type = "nop";
  Operand source = Operand::input(-1), destination = Operand::output(-1);
  int count = 0;
  Dependency after{-1, -1};
  bool awaited = false;
};

struct XmlBlock {
  int send = -1, receive = -1, channel = -1;
  std::vector<XmlStep> steps;
  std::vector<int32_t> last;  // per step of the lane: the XML step that completes it
};

class XmlWriter {
 public:
  XmlWriter(const ScheduleFile& file, MscclDialect dialect)
      : file_(file), s_(file.schedule), dialect_(dialect) {}

  std::string write() {
    const std::string_view coll = coll_name(s_.collective.kind, dialect_);
    if (coll.empty()) refuse("MSCCL's dialect has no {}", name(s_.collective.kind));
    if (s_.cpu_nodes > 0) refuse("it has CPU nodes");
    if (!s_.codecs.empty()) refuse("it has codecs");
    for (size_t r = 0; r < s_.ranks.size(); r++) write_gpu(static_cast<int>(r));
    return fmt::format(
        "<algo name=\"{}\" proto=\"{}\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" "
        "coll=\"{}\"{}{}>\n{}</algo>\n",
        xml_escaped(s_.name), file_.protocol, channels_, input_chunks_or_output(), s_.ranks.size(),
        coll, selection(),
        s_.collective.rooted() && s_.collective.root != 0
            ? fmt::format(" root=\"{}\"", s_.collective.root)
            : "",
        text_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ncclInvalidUsage, "schedule '{}' cannot be written as MSCCL XML: {}", s_.name,
         fmt::format(format, std::forward<Args>(args)...));
  }

  int64_t chunks_of(int blocks) const { return int64_t{blocks} * s_.chunks; }
  // nchunksperloop: chunks of the larger buffer.
  int64_t input_chunks_or_output() const {
    const Collective& c = s_.collective;
    return chunks_of(std::max(c.input_blocks(c.root), c.output_blocks(c.root)));
  }

  std::string selection() const {
    bool in_place = file_.in_place, out_of_place = file_.out_of_place;
    if (!file_.modes_declared) {
      const ProvedFile proved = prove(file_, 1 << 20);
      in_place = proved.in_place != nullptr;
      out_of_place = proved.out_of_place != nullptr;
    }
    if (dialect_ == MscclDialect::kAzure)
      return fmt::format(" inplace=\"{:d}\" outofplace=\"{:d}\" minBytes=\"{}\" maxBytes=\"{}\"",
                         in_place, out_of_place, file_.min_bytes,
                         file_.max_bytes == ScheduleFile::kNoLimit ? 0 : file_.max_bytes);
    if (in_place && out_of_place)
      refuse("the legacy dialect has one mode a file, and this one is for calls in place and out");
    // Without maxBytes the runtime stops at 128 MB.
    const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return fmt::format(" inplace=\"{:d}\" minBytes=\"{}\" maxBytes=\"{}\"", in_place,
                       file_.min_bytes, std::min(file_.max_bytes, most));
  }

  void write_gpu(int rank) {
    const RankSchedule& mine = s_.ranks[static_cast<size_t>(rank)];
    if (static_cast<int>(mine.lanes.size()) > kMostBlocks)
      refuse("rank {} has {} lanes, at most {} fit", rank, mine.lanes.size(), kMostBlocks);
    std::vector<XmlBlock> blocks(mine.lanes.size());
    for (size_t l = 0; l < mine.lanes.size(); l++)
      for (size_t n = 0; n < mine.lanes[l].steps.size(); n++)
        add(blocks[l], {rank, static_cast<int32_t>(l), static_cast<int32_t>(n)},
            mine.lanes[l].steps[n]);
    for (XmlBlock& block : blocks)
      for (XmlStep& step : block.steps) resolve(rank, mine, blocks, step);
    assign_channels(rank, blocks);
    const Collective& c = s_.collective;
    text_ +=
        fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", rank,
                    chunks_of(c.input_blocks(c.root)), chunks_of(outputs()), mine.scratch_chunks);
    for (size_t l = 0; l < blocks.size(); l++) {
      const XmlBlock& block = blocks[l];
      if (static_cast<int>(block.steps.size()) > kMostBlockSteps)
        refuse("rank {} lane {} has {} steps, at most {} fit", rank, l, block.steps.size(),
               kMostBlockSteps);
      text_ += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", l,
                           block.send, block.receive, block.channel);
      for (size_t n = 0; n < block.steps.size(); n++) write_step(n, block.steps[n]);
      text_ += "    </tb>\n";
    }
    text_ += "  </gpu>\n";
  }

  // Of the rank that has most: the runtimes want the same number on all ranks.
  int outputs() const {
    const Collective& c = s_.collective;
    return c.output_blocks(c.root);
  }

  void write_step(size_t number, const XmlStep& step) {
    constexpr const char* kLetters = "ios";
    text_ += fmt::format(
        "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
        "cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"{:d}\"/>\n",
        number, step.type, kLetters[static_cast<int>(step.source.buffer)], step.source.index,
        kLetters[static_cast<int>(step.destination.buffer)], step.destination.index, step.count,
        step.after.lane, step.after.step, step.awaited);
  }

  void use_peer(int& mine, XmlBlock& block, const StepId& at, const Operand& peer) const {
    if ((mine >= 0 && mine != peer.index) || (block.channel >= 0 && block.channel != peer.channel))
      refuse("{}: a thread block has one peer to send to and one to receive from, on one channel",
             describe(at));
    if (peer.channel >= kMostChannels)
      refuse("{}: channel {}, there are {}", describe(at), peer.channel, kMostChannels);
    mine = peer.index;
    block.channel = peer.channel;
  }

  // Adds the XML steps of one step.
  void add(XmlBlock& block, const StepId& at, const Step& step) const {
    const auto is = [](Operand::Kind kind) {
      return [kind](const Operand& o) { return o.kind == kind; };
    };
    const auto has = [&](const std::vector<Operand>& operands, Operand::Kind kind) {
      return std::any_of(operands.begin(), operands.end(), is(kind));
    };
    if (has(step.from, Operand::Kind::kRemote) || has(step.to, Operand::Kind::kRemote))
      refuse("{} reaches into a peer's memory", describe(at));
    const bool empty = step.from.empty() && step.to.empty();
    if (step.count == 0 && !empty) refuse("{} moves a token", describe(at));
    if (step.from.empty() != step.to.empty())
      refuse("{} has {} sources but {} destinations", describe(at), step.from.size(),
             step.to.size());
    if (step.count > kMostCount && !empty)
      refuse("{} moves {} chunks, at most {} fit in a step", describe(at), step.count, kMostCount);
    // All dependencies but the last go into nops of their own.
    const size_t waits = step.after.size();
    for (size_t i = 0; i + (empty ? 0 : 1) < std::max<size_t>(waits, empty ? 1 : 0); i++) {
      XmlStep nop;
      if (i < waits) nop.after = step.after[i];
      block.steps.push_back(nop);
    }
    if (!empty) {
      Dependency last{-1, -1};
      if (waits > 0) {
        last = step.after.back();
      } else if (!block.steps.empty() && std::string_view(block.steps.back().type) == "nop") {
        last = block.steps.back().after;  // the runtimes want a dependency beside a nop's
      }
      const size_t first = block.steps.size();
      split(block, at, step);
      block.steps[first].after = last;
    }
    block.last.push_back(static_cast<int32_t>(block.steps.size()) - 1);
  }

  void split(XmlBlock& block, const StepId& at, const Step& step) const {
    const Operand *from_peer = nullptr, *to_peer = nullptr, *into = nullptr;
    std::vector<Operand> sources;
    for (const Operand& o : step.from) {
      if (o.kind == Operand::Kind::kLocal) {
        sources.push_back(o);
      } else if (from_peer != nullptr) {
        refuse("{} receives from several peers", describe(at));
      } else {
        from_peer = &o;
      }
    }
    for (const Operand& o : step.to) {
      const Operand*& slot = o.kind == Operand::Kind::kLocal ? into : to_peer;
      if (slot != nullptr)
        refuse("{} {} several {}", describe(at), &slot == &into ? "writes" : "sends to",
               &slot == &into ? "places" : "peers");
      slot = &o;
    }
    if (from_peer != nullptr) use_peer(block.receive, block, at, *from_peer);
    if (to_peer != nullptr) use_peer(block.send, block, at, *to_peer);
    const auto put = [&](const char* type, const Operand& source, const Operand& destination) {
      block.steps.push_back({type, source, destination, step.count, {-1, -1}, false});
    };
    if (from_peer != nullptr) {
      if (sources.size() > 1)
        refuse("{} reduces {} sources, MSCCL's steps two", describe(at), step.from.size());
      if (sources.empty() && into == nullptr)
        refuse("{} passes a message on without storing it", describe(at));
      const Operand& source = sources.empty() ? *into : sources[0];
      const char* type = sources.empty()      ? (to_peer != nullptr ? "rcs" : "r")
                         : into == nullptr    ? "rrs"
                         : to_peer != nullptr ? "rrcs"
                                              : "rrc";
      put(type, source, into != nullptr ? *into : source);
      return;
    }
    if (into == nullptr) {
      if (sources.size() > 1) refuse("{} sends a sum it does not store", describe(at));
      put("s", sources[0], sources[0]);
      return;
    }
    add_up(sources, *into, at, put);
    if (to_peer != nullptr) put("s", *into, *into);
  }

  // A copy or a reduction within the rank.
  template <typename Put>
  void add_up(std::vector<Operand> sources, const Operand& into, const StepId& at,
              const Put& put) const {
    if (sources.size() == 1) return put("cpy", sources[0], into);
    auto stored = std::find(sources.begin(), sources.end(), into);
    if (stored == sources.end()) {
      put("cpy", sources[0], into);
      stored = sources.begin();
    }
    sources.erase(stored);
    for (const Operand& source : sources) {
      if (source == into) refuse("{} adds a chunk to itself", describe(at));
      put("re", source, into);
    }
  }

  // Converts a dependency from lane and step to block and XML step.
  void resolve(int rank, const RankSchedule& mine, std::vector<XmlBlock>& blocks, XmlStep& step) {
    if (step.after.lane < 0) return;
    const auto lane = static_cast<size_t>(step.after.lane);
    const auto number = static_cast<size_t>(step.after.step);
    if (lane >= mine.lanes.size() || number >= mine.lanes[lane].steps.size())
      refuse("rank {} depends on lane {} step {}, which does not exist", rank, lane, number);
    if (mine.lanes[lane].steps[number].from.empty())
      refuse("a step depends on {}, which moves nothing",
             describe(StepId{rank, step.after.lane, step.after.step}));
    const int32_t line = blocks[lane].last[number];
    blocks[lane].steps[static_cast<size_t>(line)].awaited = true;
    step.after.step = line;
  }

  void assign_channels(int rank, std::vector<XmlBlock>& blocks) {
    std::vector<int> used(kMostChannels, 0);
    for (const XmlBlock& block : blocks)
      if (block.channel >= 0) used[static_cast<size_t>(block.channel)]++;
    for (XmlBlock& block : blocks) {
      if (block.channel >= 0) continue;
      // Blocks without peers go to any channel with room, if possible one that is in use already.
      const auto room =
          std::find_if(used.begin(), used.end(), [](int n) { return n < kMostBlocksOfChannel; });
      block.channel = room == used.end() ? 0 : static_cast<int>(room - used.begin());
      used[static_cast<size_t>(block.channel)]++;
    }
    for (size_t c = 0; c < used.size(); c++) {
      if (used[c] > kMostBlocksOfChannel)
        refuse("rank {} has {} lanes on channel {}, at most {} fit", rank, used[c], c,
               kMostBlocksOfChannel);
      if (used[c] > 0) channels_ = std::max(channels_, static_cast<int>(c) + 1);
    }
  }

  const ScheduleFile& file_;
  const Schedule& s_;
  const MscclDialect dialect_;
  int channels_ = 1;
  std::string text_;
};

}  // namespace

std::string write_msccl_xml(const ScheduleFile& file, MscclDialect dialect) {
  return XmlWriter(file, dialect).write();
}

}  // namespace weft
