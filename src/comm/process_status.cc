// See process_status.h.
#include "src/comm/process_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/base/error.h"
#include "src/transport/status_request.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kAnswerWithinS = 1;

// Text of another process for a terminal: without control characters.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

// Another process says it. Values inside more values than any status has would use up the stack.
Json parse_status(const std::string& answer) {
  constexpr int kDeepest = 16;
  return Json::parse(answer, [](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) fail(ncclSystemError, "its answer is nested too deeply");
    if (event == Json::parse_event_t::value && parsed.is_string())
      parsed = printable(parsed.get<std::string>());
    return true;
  });
}

// A whole number that fits: get() takes any number, and those out of range are undefined.
uint64_t whole(const Json& value) {
  if (!value.is_number_unsigned()) fail(ncclSystemError, "its answer has another kind of number");
  return value.get<uint64_t>();
}
int small(const Json& value) {
  const bool fits = value.is_number_integer() && value >= INT32_MIN && value <= INT32_MAX;
  if (!fits) fail(ncclSystemError, "its answer has another kind of number");
  return value.get<int>();
}

// Names of the acceptors' unix sockets in this network namespace: weft- and 16 hexadecimal digits.
std::set<std::string> socket_names() {
  std::set<std::string> names;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.rfind(" @weft-");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + 2);
    if (name.size() == 21 && name.find_first_not_of("0123456789abcdef", 5) == std::string::npos)
      names.insert(name);
  }
  return names;
}

std::string ask_process(const Fd& socket, int pid) {
  try {
    const std::string answer = request_status(socket.get(), in_seconds(kAnswerWithinS));
    return parse_status(answer).dump();
  } catch (const std::exception& error) {
    const Json silent = {
        {"pid", pid},
        {"error", fmt::format("it gives no answer (it may be stopped, or of another version): {}",
                              error.what())},
        {"communicators", Json::array()}};
    return silent.dump();
  }
}

std::string seconds(double value) {
  return value < 100 ? fmt::format("{:.1f} s", value) : fmt::format("{:.0f} s", value);
}

// "running 3.0 s: all_reduce 17, 4096 bytes float32 sum"
std::string describe_operation(const Json& comm) {
  if (!comm.contains("operation")) return "no operation yet";
  const Json& op = comm.at("operation");
  const std::string phase = op.at("phase"), kind = op.at("kind"), type = op.at("type"),
                    reduces = op.at("op");
  const bool single = kind == "send" || kind == "receive";
  const bool rooted =
      kind == "broadcast" || kind == "reduce" || kind == "gather" || kind == "scatter";
  std::string what = kind;
  if (single)
    what += fmt::format(" {} {}", kind == "send" ? "to" : "from", small(op.at("root")));
  else
    what += fmt::format(" {}", whole(op.at("number")));
  what += fmt::format(", {} bytes {}", whole(op.at("bytes")), type);
  if (reduces != "-") what += " " + reduces;
  if (rooted) what += fmt::format(" root {}", small(op.at("root")));
  if (const auto together = whole(op.at("together")); together > 1)
    what += fmt::format(", one of {} in a group", together);
  const std::string age = seconds(op.at("seconds").get<double>());
  return phase == "done" || phase == "failed" ? fmt::format("{} {} ago: {}", phase, age, what)
                                              : fmt::format("{} {}: {}", phase, age, what);
}

std::string describe_wait(const Json& comm) {
  if (comm.contains("fault")) return "failed: " + comm.at("fault").get<std::string>();
  if (!comm.contains("waits")) return "";
  const Json& wait = comm.at("waits");
  return fmt::format("waits {} for {} {} (pid {}), step {} of lane {}",
                     seconds(wait.at("seconds").get<double>()),
                     wait.at("cpu_node").get<bool>() ? "CPU node" : "rank", small(wait.at("for")),
                     small(wait.at("pid")), whole(wait.at("step")), whole(wait.at("lane"))) +
         (wait.at("to_send").get<bool>() ? ", to send" : "");
}

struct StatusTable {
  std::map<std::string, std::map<int, std::string>> rows;  // per communicator and rank
  std::map<std::string, std::string> titles;
};

void add_row(StatusTable& table, int pid, const Json& comm) {
  const std::string hash = comm.at("communicator"), name = comm.at("name"),
                    state = comm.at("state");
  const int rank = small(comm.at("rank"));
  const std::string title =
      fmt::format("communicator {}{}, {} ranks", hash, name.empty() ? "" : " '" + name + "'",
                  small(comm.at("nranks")));
  const std::string wait = describe_wait(comm);
  table.rows[hash][rank] = fmt::format(
      "  rank {:<4} pid {:<8} {}{}{}\n", rank, pid, state == "ready" ? "" : state + ", ",
      describe_operation(comm), wait.empty() ? "" : "\n             " + wait);
  table.titles[hash] = title;
}

}  // namespace

std::vector<std::string> ask_processes(int pid, bool of_other_users) {
  std::vector<std::future<std::string>> answers;
  for (const std::string& name : socket_names()) {
    Fd socket = connect_unix(name);
    if (!socket) continue;
    const SocketPeer peer = socket_peer(socket.get());
    if (peer.pid == getpid() || (pid != 0 && peer.pid != pid)) continue;
    if (!of_other_users && peer.uid != static_cast<int64_t>(geteuid())) {
      if (pid != 0) fail(ncclInvalidArgument, "process {} belongs to another user", pid);
      continue;
    }
    // All at once: one that is stopped does not delay the others.
    answers.push_back(std::async(std::launch::async, ask_process, std::move(socket), peer.pid));
  }
  std::vector<std::string> processes;
  for (auto& answer : answers) processes.push_back(answer.get());
  return processes;
}

std::string status_text(const std::vector<std::string>& processes) {
  std::string text;
  StatusTable table;
  for (const std::string& answer : processes) {
    try {
      const Json process = parse_status(answer);
      if (process.contains("error"))
        text += fmt::format("pid {}: {}\n", small(process.at("pid")),
                            process.at("error").get<std::string>());
      for (const Json& comm : process.at("communicators"))
        add_row(table, small(process.at("pid")), comm);
    } catch (const std::exception& error) {
      text += fmt::format("a process gives an answer that is not understood: {}\n",
                          printable(error.what()));
    }
  }
  for (const auto& [hash, ranks] : table.rows) {
    text += fmt::format("{}, {} here\n", table.titles[hash], ranks.size());
    for (const auto& [rank, row] : ranks) text += row;
  }
  return text;
}

std::string status_list(const std::vector<std::string>& processes) {
  std::string list;
  for (const std::string& process : processes) list += (list.empty() ? "" : ",") + process;
  return "{\"processes\":[" + list + "]}";
}

}  // namespace weft
