// See simulation_trace.h.
#include "src/simulator/simulation_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

namespace weft {
namespace {

// Escapes text for JSON; names come from files.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string operand_text(const Operand& operand, int count) {
  constexpr char kLetters[] = "ios";
  const auto letter = kLetters[static_cast<size_t>(operand.buffer)];
  const std::string index = count > 1
                                ? fmt::format("{}..{}", operand.index, operand.index + count - 1)
                                : fmt::format("{}", operand.index);
  switch (operand.kind) {
    case Operand::Kind::kPeer:
      return fmt::format("r{}", operand.index);
    case Operand::Kind::kRemote:
      return fmt::format("r{}.{}[{}]", operand.owner, letter, index);
    default:
      return fmt::format("{}[{}]", letter, index);
  }
}

class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {
    out_ << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  }
  ~Writer() { out_ << "\n]}\n"; }

  void name(std::string_view what, size_t process, size_t row, std::string_view name) {
    begin();
    out_ << fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                        process, row, quoted(name));
  }
  // Keeps processes in this order.
  void order(size_t process) {
    begin();
    out_ << fmt::format(
        R"({{"ph":"M","name":"process_sort_index","pid":{0},"tid":0,"args":{{"sort_index":{0}}}}})",
        process);
  }
  void span(std::string_view name, size_t process, size_t row, double begin_us, double end_us,
            const std::string& arguments) {
    begin();
    out_ << fmt::format(
        R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.6f},"dur":{:.6f},"args":{{{}}}}})",
        quoted(name), process, row, begin_us, end_us - begin_us, arguments);
  }

 private:
  void begin() {
    if (!first_) out_ << ",\n";
    first_ = false;
  }
  std::ostream& out_;
  bool first_ = true;
};

}  // namespace

std::string short_text(const Step& step) {
  if (step.count == 0) return step.from.empty() ? "token to peers" : "token from peers";
  std::string text;
  const auto list = [&](const std::vector<Operand>& operands) {
    constexpr size_t kShown = 4;
    for (size_t i = 0; i < operands.size() && i < kShown; i++)
      text += fmt::format("{}{}", i > 0 ? ", " : "", operand_text(operands[i], step.count));
    if (operands.size() > kShown) text += fmt::format(" and {} more", operands.size() - kShown);
  };
  if (step.from.empty() && step.to.empty()) return "wait";
  list(step.from);
  text += " to ";
  list(step.to);
  return text;
}

std::vector<PathPart> critical_parts(const Schedule& schedule, const Simulation& simulation) {
  const ScheduleGraph graph = step_graph(schedule);
  std::vector<PathPart> parts;
  int32_t last = -1;
  for (const int32_t number : simulation.critical) {
    const StepSpan& span = simulation.steps[static_cast<size_t>(number)];
    if (span.step == last) {
      parts.back().spans++;
      parts.back().end_us = span.end_us;
    } else {
      parts.push_back({graph.id(span.step), 1, span.begin_us, span.end_us});
    }
    last = span.step;
  }
  return parts;
}

void write_trace(const Machine& machine, const Schedule& schedule, const Simulation& simulation,
                 std::ostream& out) {
  const ScheduleGraph graph = step_graph(schedule);
  const size_t links = schedule.ranks.size();  // the process after the ranks
  const std::vector<int> ranks = gpus(machine);
  Writer writer(out);
  for (size_t r = 0; r < schedule.ranks.size(); r++) {
    writer.name("process_name", r, 0,
                fmt::format("rank {} ({})", r, machine.nodes[static_cast<size_t>(ranks[r])].id));
    writer.order(r);
    for (size_t l = 0; l < schedule.ranks[r].lanes.size(); l++)
      writer.name("thread_name", r, l, fmt::format("lane {}", l));
  }
  writer.name("process_name", links, 0, "links");
  writer.order(links);
  std::vector<LinkUse> used = simulation.links;
  std::sort(used.begin(), used.end(),
            [](const LinkUse& a, const LinkUse& b) { return a.link < b.link; });
  for (const LinkUse& use : used)
    writer.name("thread_name", links, static_cast<size_t>(use.link), link_name(machine, use.link));

  std::vector<bool> critical(simulation.steps.size(), false);
  for (const int32_t number : simulation.critical) critical[static_cast<size_t>(number)] = true;
  for (size_t number = 0; number < simulation.steps.size(); number++) {
    const StepSpan& span = simulation.steps[number];
    const StepId id = graph.id(span.step);
    writer.span(short_text(*graph.steps[static_cast<size_t>(span.step)]),
                static_cast<size_t>(id.rank), static_cast<size_t>(id.lane), span.begin_us,
                span.end_us,
                fmt::format(R"("step":{},"slice":{},"critical":{})", id.step, span.slice,
                            critical[number] ? "true" : "false"));
  }
  for (const LinkSpan& transfer : simulation.transfers) {
    const StepSpan& span = simulation.steps[static_cast<size_t>(transfer.span)];
    const StepId id = graph.id(span.step);
    writer.span(fmt::format("r{} to r{}", id.rank, transfer.destination), links,
                static_cast<size_t>(transfer.link), transfer.begin_us, transfer.end_us,
                fmt::format(R"("step":{},"lane":{},"slice":{})", id.step, id.lane, span.slice));
  }
}

}  // namespace weft
