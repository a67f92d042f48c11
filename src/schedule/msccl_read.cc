// The reader of MSCCL XML.
#include <algorithm>
#include <charconv>
#include <pugixml.hpp>
#include <vector>

#include "src/base/error.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_text.h"

namespace weft {
namespace {

struct CollName {
  std::string_view name;
  CollectiveKind kind;
};
constexpr CollName kCollNames[] = {
    {"allreduce", CollectiveKind::kAllReduce},
    {"allgather", CollectiveKind::kAllGather},
    {"reducescatter", CollectiveKind::kReduceScatter},   // Azure, RCCL
    {"reduce_scatter", CollectiveKind::kReduceScatter},  // legacy
    {"alltoall", CollectiveKind::kAllToAll},
    {"broadcast", CollectiveKind::kBroadcast},
    {"reduce", CollectiveKind::kReduce},
    {"gather", CollectiveKind::kGather},
    {"scatter", CollectiveKind::kScatter},
};

bool counts_all_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

// How a step type uses the block's peers and memory.
struct StepType {
  std::string_view name;
  bool receives, sends, reads, writes;
};
constexpr StepType kStepTypes[] = {
    {"nop", false, false, false, false}, {"s", false, true, true, false},
    {"r", true, false, false, true},     {"rcs", true, true, false, true},
    {"rrs", true, true, true, false},    {"rrc", true, false, true, true},
    {"rrcs", true, true, true, true},    {"cpy", false, false, true, true},
    {"re", false, false, true, true},
};

class XmlReader {
 public:
  XmlReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  ScheduleFile read(std::optional<CollectiveKind> named) {
    if (const size_t bad = first_not_utf8(text_); bad != std::string_view::npos)
      fail(ncclInvalidUsage, "{}:{}: not UTF-8", source_, line_at(text_, bad));
    // The parser skips document type declarations and never expands custom entities.
    const pugi::xml_parse_result parsed =
        document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed)
      fail(ncclInvalidUsage, "{}:{}: not well-formed XML: {}", source_,
           line_at(text_, static_cast<size_t>(std::max<std::ptrdiff_t>(0, parsed.offset))),
           parsed.description());
    const pugi::xml_node algo = document_.document_element();
    if (std::string_view(algo.name()) != "algo") refuse(algo, "the root element must be <algo>");
    read_algo(algo, named);
    read_gpus(algo);
    return std::move(file_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(pugi::xml_node node, fmt::format_string<Args...> format,
                           Args&&... args) const {
    throw Error(ncclInvalidUsage,
                complaint(node, fmt::format(format, std::forward<Args>(args)...)));
  }
  std::string complaint(pugi::xml_node node, const std::string& what) const {
    const auto at = static_cast<size_t>(std::max<std::ptrdiff_t>(0, node.offset_debug()));
    return fmt::format("{}:{}: {}: {}", source_, line_at(text_, at), path(node), what);
  }

  // "gpu 0 tb 3 step 7"
  static std::string path(pugi::xml_node node) {
    std::string text;
    // Files that nest deeper than MSCCL's are refused earlier.
    for (int depth = 0; node.type() == pugi::node_element && depth < 5; depth++) {
      const std::string_view tag = node.name();
      const pugi::xml_attribute id = node.attribute(tag == "step" ? "s" : "id");
      const bool numbered = tag == "gpu" || tag == "tb" || tag == "step";
      const std::string part = numbered
                                   ? fmt::format("{} {}", tag, id ? printable(id.value()) : "?")
                                   : fmt::format("<{}>", printable(tag));
      if (text.empty() || tag != "algo") text = text.empty() ? part : part + " " + text;
      node = node.parent();
    }
    return text.empty() ? "the document" : text;
  }

  int64_t whole(pugi::xml_node node, const char* name, int64_t least, int64_t most) const {
    const pugi::xml_attribute attribute = node.attribute(name);
    if (!attribute) refuse(node, "has no attribute {}", name);
    const std::string_view value = attribute.value();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size())
      refuse(node, "{} is {}, not a whole number", name, excerpt(value));
    if (number < least || number > most)
      refuse(node, "{} is {}, must be {} to {}", name, number, least, most);
    return number;
  }
  int64_t whole_or(pugi::xml_node node, const char* name, int64_t least, int64_t most,
                   int64_t otherwise) const {
    return node.attribute(name) ? whole(node, name, least, most) : otherwise;
  }

  void read_algo(pugi::xml_node algo, std::optional<CollectiveKind> named) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    Schedule& s = file_.schedule;
    s.name = algo.attribute("name").value();
    s.collective.kind = read_collective(algo, named);
    s.collective.nranks = static_cast<int>(whole(algo, "ngpus", 1, kMostFileRanks));
    s.collective.root =
        static_cast<int>(whole_or(algo, "root", 0, int64_t{s.collective.nranks} - 1, 0));
    const int64_t per_loop = whole(algo, "nchunksperloop", 1, kMostFileChunks);
    const int64_t blocks = counts_all_blocks(s.collective.kind) ? s.collective.nranks : 1;
    if (per_loop % blocks != 0)
      refuse(algo, "nchunksperloop is {}, which does not divide by the {} ranks of {}", per_loop,
             blocks, weft::name(s.collective.kind));
    s.chunks = static_cast<int32_t>(per_loop / blocks);
    whole_or(algo, "nchannels", 1, kMostFileChannels, 1);
    if (algo.attribute("proto")) {
      file_.protocol = algo.attribute("proto").value();
      if (file_.protocol != "Simple" && file_.protocol != "LL" && file_.protocol != "LL128")
        refuse(algo, "proto is {}, must be Simple, LL or LL128", excerpt(file_.protocol));
    }
    file_.min_bytes = static_cast<uint64_t>(whole_or(algo, "minBytes", 0, kMost, 0));
    const auto most = static_cast<uint64_t>(whole_or(algo, "maxBytes", 0, kMost, 0));
    if (most != 0 && most != static_cast<uint64_t>(kMost)) file_.max_bytes = most;
    if (file_.max_bytes < file_.min_bytes)
      refuse(algo, "maxBytes {} is less than minBytes {}", file_.max_bytes, file_.min_bytes);
    file_.modes_declared = algo.attribute("inplace") || algo.attribute("outofplace");
    if (!file_.modes_declared) return;
    // The legacy dialect has one attribute for both modes.
    file_.in_place = whole_or(algo, "inplace", 0, 1, 0) == 1;
    file_.out_of_place = whole_or(algo, "outofplace", 0, 1, file_.in_place ? 0 : 1) == 1;
    if (!file_.in_place && !file_.out_of_place)
      refuse(algo, "is neither for calls in place nor out of place");
  }

  CollectiveKind read_collective(pugi::xml_node algo, std::optional<CollectiveKind> named) const {
    const std::string_view coll = algo.attribute("coll").value();
    if (coll.empty() || coll == "custom") {
      if (named) return *named;
      throw Error(ncclInvalidArgument,
                  complaint(algo, coll.empty()
                                      ? "has no attribute coll: say which collective it is (--coll)"
                                      : "coll is 'custom': say which collective it is (--coll)"));
    }
    for (const CollName& known : kCollNames) {
      if (known.name != coll) continue;
      if (named && *named != known.kind)
        refuse(algo, "coll is {}, not {}", excerpt(coll), weft::name(*named));
      return known.kind;
    }
    refuse(algo, "coll is {}, which is no collective with a fixed result", excerpt(coll));
  }

  void read_gpus(pugi::xml_node algo) {
    Schedule& s = file_.schedule;
    std::vector<bool> seen;
    for (const pugi::xml_node gpu : algo.children()) {
      if (gpu.type() != pugi::node_element) continue;
      if (std::string_view(gpu.name()) != "gpu") refuse(gpu, "only <gpu> belongs into <algo>");
      const auto id = static_cast<size_t>(whole(gpu, "id", 0, s.collective.nranks - 1));
      if (seen.size() <= id) seen.resize(id + 1);
      if (seen[id]) refuse(gpu, "a second gpu {}", id);
      seen[id] = true;
      if (s.ranks.size() <= id) s.ranks.resize(id + 1);
      read_gpu(gpu, static_cast<int>(id));
    }
    seen.resize(static_cast<size_t>(s.collective.nranks));
    for (size_t r = 0; r < seen.size(); r++)
      if (!seen[r]) refuse(algo, "ngpus is {}, but there is no gpu {}", s.collective.nranks, r);
  }

  void check_chunks(pugi::xml_node gpu, const char* name, int64_t ours) const {
    const int64_t theirs = whole_or(gpu, name, 0, kMostFileChunks, 0);
    if (theirs != 0 && ours != 0 && theirs != ours)
      refuse(gpu, "{} is {}, but nchunksperloop makes it {}", name, theirs, ours);
  }

  void read_gpu(pugi::xml_node gpu, int rank) {
    const Schedule& s = file_.schedule;
    RankSchedule& mine = file_.schedule.ranks[static_cast<size_t>(rank)];
    check_chunks(gpu, "i_chunks", int64_t{s.collective.input_blocks(rank)} * s.chunks);
    check_chunks(gpu, "o_chunks", int64_t{s.collective.output_blocks(rank)} * s.chunks);
    mine.scratch_chunks = static_cast<int32_t>(whole_or(gpu, "s_chunks", 0, kMostFileChunks, 0));
    size_t blocks = 0;
    for (const pugi::xml_node child : gpu.children()) {
      if (child.type() != pugi::node_element) continue;
      const std::string_view tag = child.name();
      if (tag == "tb") {
        blocks++;
      } else if (tag != "copy") {
        refuse(child, "only <tb> and <copy> belong into <gpu>");
      }
    }
    mine.lanes.resize(blocks);
    std::vector<bool> seen(blocks);
    std::vector<pugi::xml_node> dependent;
    Lane copies;
    for (const pugi::xml_node child : gpu.children()) {
      if (child.type() != pugi::node_element) continue;
      if (std::string_view(child.name()) == "copy") {
        copies.steps.push_back(read_copy(child));
        continue;
      }
      const auto id = static_cast<size_t>(whole(child, "id", 0, kMostFileRanks));
      if (id >= blocks) refuse(child, "thread blocks must be numbered 0 to {}", blocks - 1);
      if (seen[id]) refuse(child, "a second tb {}", id);
      seen[id] = true;
      mine.lanes[id] = read_block(child, rank, dependent);
    }
    for (const pugi::xml_node step : dependent) {
      const int64_t lane = whole(step, "depid", 0, kMostFileRanks);
      const int64_t number = whole(step, "deps", 0, kMostFileChunks);
      if (lane >= static_cast<int64_t>(blocks) ||
          number >= static_cast<int64_t>(mine.lanes[static_cast<size_t>(lane)].steps.size()))
        refuse(step, "depends on tb {} step {}, which does not exist", lane, number);
    }
    // <copy> is the old element; later tools write a thread block of cpy steps instead.
    if (!copies.steps.empty()) mine.lanes.push_back(std::move(copies));
  }

  Step read_copy(pugi::xml_node copy) const {
    Step step;
    step.from = {Operand::input(static_cast<int>(whole(copy, "i_off", 0, kMostFileChunks)))};
    step.to = {Operand::output(static_cast<int>(whole(copy, "o_off", 0, kMostFileChunks)))};
    step.count = static_cast<int32_t>(whole_or(copy, "cnt", 1, kMostFileChunks, 1));
    return step;
  }

  struct Block {
    int send = -1, receive = -1, channel = 0;
  };

  Lane read_block(pugi::xml_node tb, int rank, std::vector<pugi::xml_node>& dependent) const {
    const int64_t last = file_.schedule.collective.nranks - 1;
    Block block;
    block.send = static_cast<int>(whole(tb, "send", -1, last));
    block.receive = static_cast<int>(whole(tb, "recv", -1, last));
    block.channel = static_cast<int>(whole(tb, "chan", 0, kMostFileChannels - 1));
    if (block.send == rank || block.receive == rank) refuse(tb, "its peer is gpu {} itself", rank);
    size_t steps = 0;
    for (const pugi::xml_node step : tb.children()) {
      if (step.type() != pugi::node_element) continue;
      const std::string_view tag = step.name();
      if (tag == "op") refuse(step, "the short form <op> is not supported; write <step>");
      if (tag != "step") refuse(step, "only <step> belongs into <tb>");
      steps++;
    }
    Lane lane;
    lane.steps.resize(steps);
    std::vector<bool> seen(steps);
    for (const pugi::xml_node step : tb.children()) {
      if (step.type() != pugi::node_element) continue;
      const auto number = static_cast<size_t>(whole(step, "s", 0, kMostFileChunks));
      if (number >= steps) refuse(step, "steps must be numbered 0 to {}", steps - 1);
      if (seen[number]) refuse(step, "a second step {}", number);
      seen[number] = true;
      lane.steps[number] = read_step(step, rank, block);
      if (!lane.steps[number].after.empty()) dependent.push_back(step);
    }
    give_waits_to_steps(lane);
    return lane;
  }

  // A nop holds a dependency for the next step that moves data. MSCCL's runtimes require that the
  // step has a dependency too. Not all tools obey, so the step gets the last nop's dependency.
  static void give_waits_to_steps(Lane& lane) {
    for (size_t n = 1; n < lane.steps.size(); n++) {
      const Step& before = lane.steps[n - 1];
      Step& step = lane.steps[n];
      if (before.from.empty() && !step.from.empty() && step.after.empty())
        step.after = before.after;
    }
  }

  Step read_step(pugi::xml_node node, int rank, const Block& block) const {
    const std::string_view type_name = node.attribute("type").value();
    const StepType* type = nullptr;
    for (const StepType& known : kStepTypes)
      if (known.name == type_name) type = &known;
    if (type == nullptr) refuse(node, "type is {}, no step type of MSCCL", excerpt(type_name));
    Step step;
    const int64_t after = whole_or(node, "depid", -1, kMostFileRanks, -1);
    if (after >= 0)
      step.after = {{static_cast<int32_t>(after),
                     static_cast<int32_t>(whole(node, "deps", 0, kMostFileChunks))}};
    whole_or(node, "hasdep", 0, 1, 0);
    if (type->name == "nop") return step;
    if (type->receives && block.receive < 0) refuse(node, "receives, but its tb has recv -1");
    if (type->sends && block.send < 0) refuse(node, "sends, but its tb has send -1");
    step.count = static_cast<int32_t>(whole(node, "cnt", 1, kMostFileChunks));
    if (type->name == "re") {
      const Operand sum = memory(node, rank, "dstbuf", "dstoff");
      step.from = {sum, memory(node, rank, "srcbuf", "srcoff")};
      step.to = {sum};
      return step;
    }
    if (type->receives) step.from.push_back(Operand::peer(block.receive, block.channel));
    if (type->reads) step.from.push_back(memory(node, rank, "srcbuf", "srcoff"));
    if (type->writes) step.to.push_back(memory(node, rank, "dstbuf", "dstoff"));
    if (type->sends) step.to.push_back(Operand::peer(block.send, block.channel));
    return step;
  }

  Operand memory(pugi::xml_node node, int rank, const char* buffer, const char* offset) const {
    const std::string_view letter = node.attribute(buffer).value();
    const auto index = static_cast<int>(whole(node, offset, 0, kMostFileChunks));
    if (letter == "s") return Operand::scratch(index);
    if (letter == "o") return Operand::output(index);
    if (letter != "i") refuse(node, "{} is {}, must be i, o or s", buffer, excerpt(letter));
    // If only the root has an input, other ranks mean the one buffer of an in-place call.
    const Collective& c = file_.schedule.collective;
    const bool alias = file_.in_place && !file_.out_of_place && c.input_blocks(rank) == 0;
    return alias ? Operand::output(index) : Operand::input(index);
  }

  std::string_view text_;
  const std::string& source_;
  pugi::xml_document document_;
  ScheduleFile file_;
};

}  // namespace

ScheduleFile read_msccl_xml(std::string_view text, const std::string& source,
                            std::optional<CollectiveKind> collective) {
  return XmlReader(text, source).read(collective);
}

}  // namespace weft
