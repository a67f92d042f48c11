// The reader of schedules as JSON: one pass, without a document in memory. Every value must be
// where the format has it, so nesting is bounded.
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "src/base/error.h"
#include "src/schedule/schedule_json.h"
#include "src/schedule/schedule_text.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Walks the text and counts lines; nlohmann's events carry no line.
struct Cursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** reached = nullptr;
  const char& operator*() const { return *at; }
  Cursor& operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at == other.at; }
  bool operator!=(const Cursor& other) const { return at != other.at; }
};

class JsonReader final : public nlohmann::json_sax<Json> {
 public:
  JsonReader(std::string_view text, const std::string& source, std::optional<CollectiveKind> named)
      : text_(text), source_(source), named_(named), reached_(text.data()) {}

  ScheduleFile read() {
    if (const size_t bad = first_not_utf8(text_); bad != std::string_view::npos)
      fail(ncclInvalidUsage, "{}:{}: not UTF-8", source_, line_at(text_, bad));
    Json::sax_parse(Cursor{text_.data(), &reached_}, Cursor{text_.data() + text_.size(), &reached_},
                    this);
    const Schedule& s = file_.schedule;
    if (s.ranks.size() != static_cast<size_t>(s.collective.nranks + s.cpu_nodes))
      refuse("\"ranks\" is {}{}, but there are {} parts", s.collective.nranks,
             s.cpu_nodes > 0 ? fmt::format(" and \"cpu_nodes\" {}", s.cpu_nodes) : "",
             s.ranks.size());
    if (s.collective.root >= s.collective.nranks)
      refuse("\"root\" is {} of {} ranks", s.collective.root, s.collective.nranks);
    if (file_.max_bytes < file_.min_bytes)
      refuse("\"max_bytes\" {} is less than \"min_bytes\" {}", file_.max_bytes, file_.min_bytes);
    return std::move(file_);
  }

  // nlohmann calls these. All either return true or throw.
  bool null() override { refuse_value("null"); }
  bool boolean(bool) override { refuse_value("a truth value"); }
  bool number_float(double, const std::string&) override { refuse_value("not a whole number"); }
  bool binary(Json::binary_t&) override { refuse_value("binary"); }
  bool number_unsigned(uint64_t value) override { return number(value, false); }
  bool number_integer(int64_t value) override {
    return number(static_cast<uint64_t>(value), value < 0);
  }
  bool string(std::string& value) override;
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(std::string& name) override;
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error ..."
    std::string_view text = error.what();
    if (const size_t colon = text.find(": "); colon != std::string_view::npos)
      text.remove_prefix(colon + 2);
    fail(ncclInvalidUsage, "{}:{}: not well-formed JSON: {}", source_, line(),
         printable(text.substr(0, text.find(';'))));
  }

 private:
  enum class At : uint8_t {
    kNothing,
    kTop,
    kModes,
    kParts,
    kPart,
    kLanes,
    kLane,
    kStep,
    kFrom,
    kTo,
    kOperand,
    kAfter,
    kDependency,
    kRoutes,
    kRoute,
    kLinks,
    kCodecs,
  };
  struct Place {
    At at = At::kNothing;
    uint32_t seen = 0;  // bit i: key i of the table
  };

  int line() const {
    // The parser looks one character ahead.
    const auto offset = static_cast<size_t>(reached_ - text_.data());
    return line_at(text_, offset > 0 ? offset - 1 : 0);
  }

  std::string where() const {
    const Schedule& s = file_.schedule;
    if (s.ranks.empty() || depth() < 3 || places_[1].at != At::kParts) return "";
    const RankSchedule& part = s.ranks.back();
    std::string text = fmt::format("rank {}", s.ranks.size() - 1);
    if (!part.lanes.empty() && depth() >= 5) {
      text += fmt::format(" lane {}", part.lanes.size() - 1);
      if (!part.lanes.back().steps.empty() && depth() >= 6)
        text += fmt::format(" step {}", part.lanes.back().steps.size() - 1);
    }
    return text + ": ";
  }
  size_t depth() const { return places_.size(); }
  At at() const { return places_.empty() ? At::kNothing : places_.back().at; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ncclInvalidUsage, "{}:{}: {}{}", source_, line(), where(),
         fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse_value(std::string_view what) const {
    if (depth() == 0) refuse("the file must be one object, not {}", what);
    if (key_.empty()) refuse("{} does not belong here", what);
    refuse("\"{}\" is {}", printable(key_), what);
  }

  static std::span<const std::string_view> keys_of(At at);
  static uint32_t required(At at);
  bool number(uint64_t value, bool negative);
  int64_t within(uint64_t value, bool negative, int64_t least, int64_t most) const;
  void open(At next) { places_.push_back({next, 0}); }
  void finish_operand();
  Step& step() { return file_.schedule.ranks.back().lanes.back().steps.back(); }

  const std::string_view text_;
  const std::string& source_;
  const std::optional<CollectiveKind> named_;
  const char* reached_;
  ScheduleFile file_;
  std::vector<Place> places_;
  std::string key_;
  int pair_ = 0;  // how many numbers of a dependency were read
};

// In the order of the bits of Place::seen.
std::span<const std::string_view> JsonReader::keys_of(At at) {
  static constexpr std::array<std::string_view, 14> kTop = {
      "weft_schedule", "name",      "collective", "ranks",    "chunks", "parts",     "root",
      "min_bytes",     "max_bytes", "modes",      "protocol", "routes", "cpu_nodes", "codecs"};
  static constexpr std::array<std::string_view, 4> kRoute = {"from", "to", "channel", "links"};
  static constexpr std::array<std::string_view, 2> kPart = {"lanes", "scratch"};
  static constexpr std::array<std::string_view, 4> kStep = {"from", "to", "count", "after"};
  static constexpr std::array<std::string_view, 7> kOperand = {
      "input", "output", "scratch", "peer", "rank", "channel", "codec"};
  switch (at) {
    case At::kTop:
      return kTop;
    case At::kPart:
      return kPart;
    case At::kStep:
      return kStep;
    case At::kOperand:
      return kOperand;
    case At::kRoute:
      return kRoute;
    default:
      return {};
  }
}

uint32_t JsonReader::required(At at) {
  return at == At::kTop ? 0x3f : at == At::kPart ? 0x1 : at == At::kRoute ? 0xf : 0;
}

bool JsonReader::key(std::string& name) {
  const auto keys = keys_of(at());
  const auto it = std::find(keys.begin(), keys.end(), name);
  const auto index = static_cast<uint32_t>(it - keys.begin());
  if (at() == At::kTop && places_.back().seen == 0 && index != 0)
    refuse("a schedule begins with \"weft_schedule\": {}", kScheduleJsonVersion);
  if (it == keys.end()) refuse("unknown key {}", excerpt(name));
  if ((places_.back().seen >> index & 1) != 0) refuse("a second \"{}\"", name);
  places_.back().seen |= 1u << index;
  key_ = name;
  return true;
}

int64_t JsonReader::within(uint64_t value, bool negative, int64_t least, int64_t most) const {
  if (!negative && value <= static_cast<uint64_t>(most) && static_cast<int64_t>(value) >= least)
    return static_cast<int64_t>(value);
  const std::string what = key_.empty() ? "a number" : fmt::format("\"{}\"", key_);
  if (negative)
    refuse("{} is {}, must be {} to {}", what, static_cast<int64_t>(value), least, most);
  refuse("{} is {}, must be {} to {}", what, value, least, most);
}

bool JsonReader::number(uint64_t value, bool negative) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto ranged = [&](int64_t least, int64_t most) {
    return static_cast<int32_t>(within(value, negative, least, most));
  };
  Schedule& s = file_.schedule;
  if (at() == At::kTop && key_ == "weft_schedule") {
    if (negative || value != kScheduleJsonVersion)
      refuse("version {} of the format; this library reads version {}", value,
             kScheduleJsonVersion);
  } else if (at() == At::kTop && key_ == "ranks") {
    s.collective.nranks = ranged(1, kMostFileRanks);
  } else if (at() == At::kTop && key_ == "chunks") {
    s.chunks = ranged(1, kMostFileChunks);
  } else if (at() == At::kTop && key_ == "cpu_nodes") {
    s.cpu_nodes = ranged(0, kMostCpuNodes);
  } else if (at() == At::kTop && key_ == "root") {
    s.collective.root = ranged(0, kMostFileRanks - 1);
  } else if (at() == At::kTop && key_ == "min_bytes") {
    file_.min_bytes = static_cast<uint64_t>(within(value, negative, 0, kMost));
  } else if (at() == At::kTop && key_ == "max_bytes") {
    file_.max_bytes = static_cast<uint64_t>(within(value, negative, 0, kMost));
  } else if (at() == At::kPart && key_ == "scratch") {
    s.ranks.back().scratch_chunks = ranged(0, kMostFileChunks);
  } else if (at() == At::kStep && key_ == "count") {
    step().count = ranged(0, kMostFileChunks);
  } else if (at() == At::kOperand) {
    const bool to = places_[places_.size() - 2].at == At::kTo;
    Operand& operand = (to ? step().to : step().from).back();
    if (key_ == "codec") {
      operand.codec = static_cast<uint8_t>(ranged(0, kMostFileCodecs));
    } else if (key_ == "rank") {
      operand.owner = ranged(0, kMostFileRanks - 1);
    } else if (key_ == "channel") {
      operand.channel = static_cast<int16_t>(ranged(0, kMostFileChannels - 1));
    } else {
      operand.index = ranged(0, key_ == "peer" ? kMostFileRanks - 1 : kMostFileChunks);
      operand.kind = key_ == "peer" ? Operand::Kind::kPeer : Operand::Kind::kLocal;
      operand.buffer = key_ == "output"    ? Buffer::kOutput
                       : key_ == "scratch" ? Buffer::kScratch
                                           : Buffer::kInput;
    }
  } else if (at() == At::kRoute && key_ == "channel") {
    s.routes.back().channel = static_cast<int16_t>(ranged(0, kMostFileChannels - 1));
  } else if (at() == At::kRoute && key_ != "links") {
    (key_ == "to" ? s.routes.back().to : s.routes.back().from) = ranged(0, kMostFileRanks - 1);
  } else if (at() == At::kLinks) {
    s.routes.back().links.push_back(ranged(0, std::numeric_limits<int32_t>::max()));
  } else if (at() == At::kDependency) {
    key_.clear();
    Dependency& d = step().after.back();
    if (pair_ > 1) refuse("a dependency is [lane, step]");
    (pair_++ == 0 ? d.lane : d.step) = ranged(0, std::numeric_limits<int32_t>::max());
  } else {
    refuse_value("a number");
  }
  return true;
}

bool JsonReader::string(std::string& value) {
  Schedule& s = file_.schedule;
  if (at() == At::kModes) {
    bool& mode = value == "in_place" ? file_.in_place : file_.out_of_place;
    if (value != "in_place" && value != "out_of_place")
      refuse("mode {}, must be in_place or out_of_place", excerpt(value));
    if (mode) refuse("a second \"{}\"", value);
    mode = true;
  } else if (at() == At::kCodecs) {
    if (s.codecs.size() == static_cast<size_t>(kMostFileCodecs))
      refuse("more than {} codecs", kMostFileCodecs);
    try {
      s.codecs.push_back(parse_codec_spec(value));
    } catch (const Error& error) {
      refuse("{}", printable(error.what()));
    }
  } else if (at() == At::kTop && key_ == "name") {
    if (std::any_of(value.begin(), value.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
      refuse("\"name\" has control characters");
    s.name = value;
  } else if (at() == At::kTop && key_ == "protocol") {
    if (value != "Simple" && value != "LL" && value != "LL128")
      refuse("\"protocol\" is {}, must be Simple, LL or LL128", excerpt(value));
    file_.protocol = value;
  } else if (at() == At::kTop && key_ == "collective") {
    const auto kind = parse_collective(value);
    if (!kind) refuse("\"collective\" is {}, which is none", excerpt(value));
    if (named_ && *named_ != *kind)
      refuse("\"collective\" is {}, not {}", value, weft::name(*named_));
    s.collective.kind = *kind;
  } else {
    refuse_value("a text");
  }
  return true;
}

bool JsonReader::start_object(size_t) {
  switch (at()) {
    case At::kNothing:
      open(At::kTop);
      break;
    case At::kParts:
      if (file_.schedule.ranks.size() == static_cast<size_t>(kMostFileRanks))
        refuse("more than {} parts", kMostFileRanks);
      file_.schedule.ranks.emplace_back();
      open(At::kPart);
      break;
    case At::kLane:
      file_.schedule.ranks.back().lanes.back().steps.emplace_back();
      open(At::kStep);
      break;
    case At::kFrom:
      step().from.emplace_back();
      open(At::kOperand);
      break;
    case At::kTo:
      step().to.emplace_back();
      open(At::kOperand);
      break;
    case At::kRoutes:
      file_.schedule.routes.emplace_back();
      open(At::kRoute);
      break;
    default:
      refuse_value("an object");
  }
  key_.clear();
  return true;
}

bool JsonReader::start_array(size_t) {
  if (at() == At::kTop && key_ == "parts") {
    open(At::kParts);
  } else if (at() == At::kTop && key_ == "modes") {
    file_.in_place = file_.out_of_place = false;
    file_.modes_declared = true;
    open(At::kModes);
  } else if (at() == At::kTop && key_ == "routes") {
    open(At::kRoutes);
  } else if (at() == At::kRoute && key_ == "links") {
    open(At::kLinks);
  } else if (at() == At::kTop && key_ == "codecs") {
    open(At::kCodecs);
  } else if (at() == At::kPart && key_ == "lanes") {
    open(At::kLanes);
  } else if (at() == At::kLanes) {
    file_.schedule.ranks.back().lanes.emplace_back();
    open(At::kLane);
  } else if (at() == At::kStep && (key_ == "from" || key_ == "to")) {
    open(key_ == "to" ? At::kTo : At::kFrom);
  } else if (at() == At::kStep && key_ == "after") {
    open(At::kAfter);
  } else if (at() == At::kAfter) {
    step().after.emplace_back();
    pair_ = 0;
    open(At::kDependency);
  } else {
    refuse_value("a list");
  }
  key_.clear();
  return true;
}

bool JsonReader::end_object() {
  const auto keys = keys_of(at());
  const uint32_t missing = required(at()) & ~places_.back().seen;
  for (size_t i = 0; i < keys.size(); i++)
    if ((missing >> i & 1) != 0) refuse("\"{}\" is missing", keys[i]);
  if (at() == At::kOperand) finish_operand();
  places_.pop_back();
  key_.clear();
  return true;
}

// The keys of the object decide the kind of operand.
void JsonReader::finish_operand() {
  const uint32_t seen = places_.back().seen;
  const bool to = places_[places_.size() - 2].at == At::kTo;
  Operand& operand = (to ? step().to : step().from).back();
  const uint32_t what = seen & 0xf;
  if (what == 0 || (what & (what - 1)) != 0)
    refuse("an operand is one of input, output, scratch and peer");
  const bool peer = what == 0x8, rank = (seen & 0x10) != 0, channel = (seen & 0x20) != 0;
  if ((peer && rank) || (!peer && channel))
    refuse("\"{}\" does not belong to a {}", peer ? "rank" : "channel", peer ? "peer" : "chunk");
  if (rank) operand.kind = Operand::Kind::kRemote;
}

bool JsonReader::end_array() {
  if (at() == At::kDependency && pair_ != 2) refuse("a dependency is [lane, step]");
  if (at() == At::kModes && !file_.in_place && !file_.out_of_place) refuse("\"modes\" is empty");
  places_.pop_back();
  return true;
}

}  // namespace

ScheduleFile read_schedule_json(std::string_view text, const std::string& source,
                                std::optional<CollectiveKind> collective) {
  return JsonReader(text, source, collective).read();
}

}  // namespace weft
