// weft status: the communicators of running jobs of this machine, and what each rank does.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/tools/commands.h"
#include "src/transport/status_request.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPatienceS = 1;

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

// A process that does not answer has "error".
Json ask_process(const Fd& socket, int pid) {
  try {
    return Json::parse(request_status(socket.get(), in_seconds(kPatienceS)));
  } catch (const std::exception& error) {
    return {
        {"pid", pid},
        {"error", fmt::format("it gives no answer (it may be stopped, or of another version): {}",
                              error.what())},
        {"communicators", Json::array()}};
  }
}

// The answers of this user's processes. `pid` 0: all.
Json ask(int pid) {
  std::vector<std::future<Json>> answers;
  for (const std::string& name : socket_names()) {
    Fd socket = connect_unix(name);
    if (!socket) continue;
    const SocketPeer peer = socket_peer(socket.get());
    if (peer.pid == getpid() || (pid != 0 && peer.pid != pid)) continue;
    if (geteuid() != 0 && peer.uid != static_cast<int64_t>(geteuid())) {
      if (pid != 0) fail(ncclInvalidArgument, "process {} belongs to another user", pid);
      continue;
    }
    // All at once: one that is stopped does not delay the others.
    answers.push_back(std::async(std::launch::async, ask_process, std::move(socket), peer.pid));
  }
  Json processes = Json::array();
  for (std::future<Json>& answer : answers) processes.push_back(answer.get());
  return processes;
}

std::string seconds(double value) {
  return value < 100 ? fmt::format("{:.1f} s", value) : fmt::format("{:.0f} s", value);
}

// "running 3.0 s: all_reduce 17, 4096 bytes float32 sum"
std::string describe_operation(const Json& comm) {
  if (!comm.contains("operation")) return "no operation yet";
  const Json& op = comm["operation"];
  const std::string phase = op["phase"], kind = op["kind"], type = op["type"], reduces = op["op"];
  const bool single = kind == "send" || kind == "receive";
  const bool rooted =
      kind == "broadcast" || kind == "reduce" || kind == "gather" || kind == "scatter";
  std::string what = kind;
  if (single)
    what += fmt::format(" {} {}", kind == "send" ? "to" : "from", op["root"].get<int>());
  else
    what += fmt::format(" {}", op["number"].get<uint64_t>());
  what += fmt::format(", {} bytes {}", op["bytes"].get<uint64_t>(), type);
  if (reduces != "-") what += " " + reduces;
  if (rooted) what += fmt::format(" root {}", op["root"].get<int>());
  if (const auto together = op["together"].get<uint64_t>(); together > 1)
    what += fmt::format(", one of {} in a group", together);
  const std::string age = seconds(op["seconds"].get<double>());
  return phase == "done" || phase == "failed" ? fmt::format("{} {} ago: {}", phase, age, what)
                                              : fmt::format("{} {}: {}", phase, age, what);
}

std::string describe_wait(const Json& comm) {
  if (comm.contains("fault")) return "failed: " + comm["fault"].get<std::string>();
  if (!comm.contains("waits")) return "";
  const Json& wait = comm["waits"];
  return fmt::format("waits {} for {} {} (pid {}), step {} of lane {}",
                     seconds(wait["seconds"].get<double>()),
                     wait["cpu_node"].get<bool>() ? "CPU node" : "rank", wait["for"].get<int>(),
                     wait["pid"].get<int>(), wait["step"].get<uint64_t>(),
                     wait["lane"].get<uint64_t>()) +
         (wait["to_send"].get<bool>() ? ", to send" : "");
}

void print_text(const Json& processes) {
  std::map<std::string, std::map<int, std::string>> rows;  // per communicator and rank
  std::map<std::string, std::string> titles;
  for (const Json& process : processes) {
    if (process.contains("error"))
      fmt::print("pid {}: {}\n", process["pid"].get<int>(), process["error"].get<std::string>());
    for (const Json& comm : process["communicators"]) {
      const std::string hash = comm["communicator"], name = comm["name"], state = comm["state"];
      const int rank = comm["rank"];
      titles[hash] = fmt::format("communicator {}{}, {} ranks", hash,
                                 name.empty() ? "" : " '" + name + "'", comm["nranks"].get<int>());
      const std::string wait = describe_wait(comm);
      rows[hash][rank] =
          fmt::format("  rank {:<4} pid {:<8} {}{}{}\n", rank, process["pid"].get<int>(),
                      state == "ready" ? "" : state + ", ", describe_operation(comm),
                      wait.empty() ? "" : "\n             " + wait);
    }
  }
  for (const auto& [hash, ranks] : rows) {
    fmt::print("{}, {} here\n", titles[hash], ranks.size());
    for (const auto& [rank, row] : ranks) fmt::print("{}", row);
  }
}

struct StatusOptions {
  std::string which = "all";
  bool json = false, watch = false;
};

int pid_of(const std::string& which) {
  if (which == "all") return 0;
  const bool number = !which.empty() && which.size() < 10 &&
                      which.find_first_not_of("0123456789") == std::string::npos;
  const int pid = number ? std::stoi(which) : 0;
  if (pid <= 0) fail(ncclInvalidArgument, "status: '{}' is neither a process id nor 'all'", which);
  return pid;
}

void show(const StatusOptions& options) {
  const int pid = pid_of(options.which);
  const bool clears = options.watch && !options.json && isatty(STDOUT_FILENO) != 0;
  for (;;) {
    const Json processes = ask(pid);
    if (processes.empty() && !options.watch) {
      if (options.json) fmt::print("{}\n", Json{{"processes", processes}}.dump());
      fmt::print(stderr, "status: {}\n",
                 pid == 0 ? "no process of yours uses Weft on this machine"
                          : fmt::format("process {} does not use Weft, or does not exist", pid));
      throw ExitCode{1};
    }
    if (clears) fmt::print("\033[H\033[2J");
    if (options.json)
      fmt::print("{}\n", Json{{"processes", processes}}.dump());
    else
      print_text(processes);
    std::fflush(stdout);
    if (!options.watch) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_status(Command& program) {
  const auto options = std::make_shared<StatusOptions>();
  Command command = program.add_command(
      "status", "what the communicators of running jobs do: operations, and who waits for whom");
  command.add_option("process", options->which, "a process id, or all (yours, on this machine)");
  command.add_flag("--json", options->json, "one JSON object");
  command.add_flag("--watch", options->watch, "again every second");
  command.calls([options] { show(*options); });
}

}  // namespace weft
