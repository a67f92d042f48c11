// See traced_plan.h.
#include "src/comm/traced_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <set>
#include <tuple>
#include <vector>

#include "src/base/trace.h"

namespace weft {
namespace {

constexpr std::array kKinds = {"peer_memory", "host_memory", "network"};

using End = std::tuple<int, int, bool>;  // peer, channel, sends

std::set<End> ends_of(const Program& program) {
  std::set<End> ends;
  for (const ProgramPort& port : program.sends) ends.emplace(port.peer, port.channel, true);
  for (const ProgramPort& port : program.receives) ends.emplace(port.peer, port.channel, false);
  for (const ProgramStep& step : program.steps)
    for (uint32_t i = 0; i < static_cast<uint32_t>(step.sources + step.destinations); i++) {
      const ProgramOperand& operand = program.operands[step.first_operand + i];
      if (operand.buffer != ProgramBuffer::kPeer && operand.owner >= 0 &&
          operand.owner != program.rank)
        ends.emplace(operand.owner, 0, i >= step.sources);
    }
  return ends;
}

}  // namespace

const char* traced_means(std::string_view path, const Program& program, const TracedPortOf& port) {
  std::array<std::vector<std::string>, kKinds.size()> ports;
  for (const auto& [peer, channel, sends] : ends_of(program)) {
    const TracedPort seen = port(peer, channel, sends);
    ports[static_cast<size_t>(seen.kind)].push_back(
        fmt::format(R"("{} {}{}{}")", sends ? "to" : "from", peer,
                    channel == 0 ? "" : fmt::format(" channel {}", channel),
                    seen.nic.empty() ? "" : " over " + seen.nic));
  }
  std::string text = fmt::format(R"("path":"{}","lanes":{})", path, program.lanes.size());
  for (size_t kind = 0; kind < kKinds.size(); kind++)
    if (!ports[kind].empty())
      text += fmt::format(R"(,"{}":[{}])", kKinds[kind], fmt::join(ports[kind], ","));
  return trace::keep(text);
}

std::string nic_of(std::span<const NetworkLinks::Link> links, int peer, int channel, bool sends) {
  for (const NetworkLinks::Link& link : links)
    if (link.route == NetworkLinks::Route{peer, channel} && link.sends == sends) return link.nic;
  return "";
}

}  // namespace weft
