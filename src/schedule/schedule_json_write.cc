// The writer of schedules as JSON.
#include <fmt/format.h>

#include <iterator>

#include "src/schedule/schedule_json.h"

namespace weft {
namespace {

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

class JsonWriter {
 public:
  std::string write(const ScheduleFile& file) {
    const Schedule& s = file.schedule;
    put("{{\"weft_schedule\": {}, \"name\": \"{}\", \"collective\": \"{}\", \"ranks\": {},\n",
        kScheduleJsonVersion, json_escaped(s.name), name(s.collective.kind), s.collective.nranks);
    put(" \"root\": {}, \"chunks\": {}, \"protocol\": \"{}\", \"min_bytes\": {}", s.collective.root,
        s.chunks, json_escaped(file.protocol), file.min_bytes);
    if (s.cpu_nodes > 0) put(", \"cpu_nodes\": {}", s.cpu_nodes);
    if (file.max_bytes != ScheduleFile::kNoLimit) put(", \"max_bytes\": {}", file.max_bytes);
    if (file.modes_declared)
      put(", \"modes\": [{}{}{}]", file.in_place ? "\"in_place\"" : "",
          file.in_place && file.out_of_place ? ", " : "",
          file.out_of_place ? "\"out_of_place\"" : "");
    if (!s.codecs.empty()) {
      put(",\n \"codecs\": [");
      list(s.codecs, "", [&](const CodecSpec& spec) { put("\"{}\"", describe(spec)); });
      put("]");
    }
    put(",\n \"parts\": [");
    list(s.ranks, "\n", [&](const RankSchedule& part) {
      put("  {{\"scratch\": {}, \"lanes\": [", part.scratch_chunks);
      list(part.lanes, "", [&](const Lane& lane) {
        put("[");
        list(lane.steps, "\n", [&](const Step& step) { write_step(step); });
        put("]");
      });
      put("]}}");
    });
    put("]");
    if (!s.routes.empty()) {
      put(",\n \"routes\": [");
      list(s.routes, "\n", [&](const RouteHint& hint) {
        put("  {{\"from\": {}, \"to\": {}, \"channel\": {}, \"links\": [", hint.from, hint.to,
            hint.channel);
        list(hint.links, "", [&](int32_t link) { put("{}", link); });
        put("]}}");
      });
      put("]");
    }
    put("}}\n");
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  // Writes the items with commas between them, and `before` in front of each.
  template <typename Items, typename Write>
  void list(const Items& items, const char* before, Write write) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) text_ += ",";
      text_ += before;
      first = false;
      write(item);
    }
  }

  // Steps are nearly all of the file. Plain appends are several times faster than formats.
  void add(std::string_view text) { text_ += text; }
  void add(int32_t number) {
    const fmt::format_int digits(number);
    text_.append(digits.data(), digits.size());
  }

  void write_step(const Step& step) {
    add("    {");
    bool more = false;
    const auto begin = [&](std::string_view key) {
      if (more) add(", ");
      add(key);
      more = true;
    };
    for (const bool to : {false, true}) {
      const auto& operands = to ? step.to : step.from;
      if (operands.empty()) continue;
      begin(to ? "\"to\": [" : "\"from\": [");
      list(operands, "", [&](const Operand& operand) { write_operand(operand); });
      add("]");
    }
    if (step.count != 1) {
      begin("\"count\": ");
      add(step.count);
    }
    if (!step.after.empty()) {
      begin("\"after\": [");
      list(step.after, "", [&](const Dependency& d) {
        add("[");
        add(d.lane);
        add(", ");
        add(d.step);
        add("]");
      });
      add("]");
    }
    add("}");
  }

  void write_operand(const Operand& operand) {
    constexpr std::string_view kBuffers[] = {"{\"input\": ", "{\"output\": ", "{\"scratch\": "};
    const bool peer = operand.kind == Operand::Kind::kPeer;
    add(peer ? "{\"peer\": " : kBuffers[static_cast<int>(operand.buffer)]);
    add(operand.index);
    if (peer && operand.channel != 0) {
      add(", \"channel\": ");
      add(operand.channel);
    }
    if (operand.kind == Operand::Kind::kRemote) {
      add(", \"rank\": ");
      add(operand.owner);
    }
    if (operand.codec != 0) {
      add(", \"codec\": ");
      add(operand.codec);
    }
    add("}");
  }

  std::string text_;
};

}  // namespace

std::string write_schedule_json(const ScheduleFile& file) { return JsonWriter().write(file); }

}  // namespace weft
