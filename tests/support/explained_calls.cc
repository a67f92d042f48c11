// See explained_calls.h.
#include "tests/support/explained_calls.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "include/weft.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr const char* kKinds[] = {"peer_memory", "host_memory", "network"};

struct Sized {
  std::string collective;
  size_t bytes = 0;  // of the whole array, as weft explain has it
};

Sized sized(const Case& c, int nranks) {
  const bool blocks =
      c.operation == Operation::kAllGather || c.operation == Operation::kReduceScatter;
  return {weft_name(c.operation),
          c.count * sizeof(float) * static_cast<size_t>(blocks ? nranks : 1)};
}

// What one rank's timeline says of a call.
using Seen = json;

// By rank: its collectives, in order.
std::map<int, std::vector<Seen>> operations(const std::string& trace) {
  std::map<int, std::vector<Seen>> seen;
  const json events = json::parse(std::ifstream(trace), nullptr, false);
  EXPECT_TRUE(events.is_array()) << trace;
  for (const json& event : events)
    if (event.value("ph", "") == "X" && event.value("tid", -1) == 0)
      seen[event["pid"].get<int>() & 0xfff].push_back(event);
  for (auto& [rank, list] : seen)
    std::stable_sort(list.begin(), list.end(), [](const Seen& a, const Seen& b) {
      return a["ts"].get<double>() < b["ts"].get<double>();
    });
  return seen;
}

// The ports of all ranks: sender, receiver and channel, and the kind. Both ends must agree on it.
class Ports {
 public:
  void add(int rank, const json& means) {
    for (const char* kind : kKinds)
      for (const auto& text : means.value(kind, json::array())) {
        std::istringstream words(text.get<std::string>());
        std::string way, word, nic;
        int peer = -1, channel = 0;
        words >> way >> peer;
        while (words >> word) {
          if (word == "channel") words >> channel;
          if (word == "over") words >> nic;
        }
        ASSERT_TRUE(peer >= 0 && (way == "to" || way == "from")) << text;
        const bool sends = way == "to";
        const auto [at, fresh] =
            kinds_.try_emplace({sends ? rank : peer, sends ? peer : rank, channel}, kind);
        EXPECT_EQ(at->second, kind) << "rank " << rank << " " << text;
        if (sends && !nic.empty()) nics_[rank].insert(nic);
      }
  }
  int count(const std::string& kind) const {
    return static_cast<int>(std::count_if(kinds_.begin(), kinds_.end(),
                                          [&](const auto& port) { return port.second == kind; }));
  }
  // As the machine names them: with the host.
  std::set<std::string> nics(const EmulatedMachine& machine) const {
    std::set<std::string> names;
    for (const auto& [rank, own] : nics_)
      for (const std::string& nic : own)
        names.insert("h" + std::to_string(machine.host_of(rank)) + "." + nic);
    return names;
  }

 private:
  std::map<std::tuple<int, int, int>, std::string> kinds_;
  std::map<int, std::set<std::string>> nics_;
};

}  // namespace

struct ExplainedCalls::Answer {
  Sized call;
  json said;
};

std::vector<Case> explained_cases(int nranks) {
  std::vector<Case> cases;
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
        Operation::kBroadcast, Operation::kReduce})
    for (const size_t bytes : {size_t{4} << 10, size_t{256} << 10, size_t{2} << 20}) {
      Case& c = cases.emplace_back();
      c.operation = operation;
      const bool blocks =
          operation == Operation::kAllGather || operation == Operation::kReduceScatter;
      c.count = bytes / sizeof(float) / static_cast<size_t>(blocks ? nranks : 1);
    }
  return cases;
}

ExplainedCalls::ExplainedCalls(const EmulatedMachine& machine)
    : machine_(machine), folder_((fs::temp_directory_path() / "weft-explained-XXXXXX").string()) {
  EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  trace_ = folder_ + "/trace.json";
  for (const Case& c : explained_cases(machine_.ranks)) answers_.push_back(explained(c));
}

ExplainedCalls::~ExplainedCalls() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

ExplainedCalls::Answer ExplainedCalls::explained(const Case& c) const {
  Answer answer{sized(c, machine_.ranks), {}};
  const std::string hosts =
      machine_.on_gpus ? " --gpus" : " --hosts " + std::to_string(machine_.hosts);
  // The first question synthesizes for all: the same plans, however busy the machine is.
  const std::string command = "WEFT_SYNTHESIS_SECONDS=20 WEFT_CACHE=" + folder_ + " " +
                              WEFT_COMMAND + " explain " + machine_.topo + hosts + " --coll " +
                              answer.call.collective + " --size " +
                              std::to_string(answer.call.bytes) + " --json";
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  for (int byte = 0; pipe != nullptr && (byte = fgetc(pipe)) != EOF;)
    text += static_cast<char>(byte);
  EXPECT_EQ(pclose(pipe), 0) << command;
  answer.said = json::parse(text, nullptr, false);
  EXPECT_TRUE(answer.said.contains("plan") && answer.said.contains("ports")) << command << text;
  return answer;
}

std::map<std::string, std::string> ExplainedCalls::environment(int rank) const {
  return {{"WEFT_TOPO", machine_.topo},
          {"WEFT_TRACE", trace_},
          {"WEFT_CACHE", folder_},
          {"WEFT_SYNTHESIS_SECONDS", "20"},
          {"NCCL_HOSTID", "host" + std::to_string(machine_.host_of(rank))},
          {"NCCL_NET_PLUGIN", WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so"},
          {"NCCL_NET", "tiny11"},
          {"WEFT_TEST_NICS", machine_.nics}};
}

void ExplainedCalls::run(const char* scenario) const {
  ProcessOptions options;
  options.limit = std::chrono::seconds(180);
  for (const Answer& answer : answers_)
    options.argument += answer.call.collective + " " + std::to_string(answer.call.bytes) + " " +
                        answer.said.value("plan", "none") + "\n";
  options.environment = [this](int rank) { return environment(rank); };
  run_ranks_as_processes(scenario, machine_.ranks, options);
}

void ExplainedCalls::expect_that_they_ran() const {
  const std::map<int, std::vector<Seen>> ran = operations(trace_);
  ASSERT_EQ(ran.size(), static_cast<size_t>(machine_.ranks));
  for (const auto& [rank, list] : ran) ASSERT_EQ(list.size(), answers_.size()) << "rank " << rank;
  for (size_t i = 0; i < answers_.size(); i++) {
    const json& said = answers_[i].said;
    SCOPED_TRACE(answers_[i].call.collective + " of " + std::to_string(answers_[i].call.bytes) +
                 " by " + said.value("plan", ""));
    Ports ports;
    int lanes = 0;
    for (const auto& [rank, list] : ran) {
      EXPECT_EQ(list[i].value("name", ""), answers_[i].call.collective) << "rank " << rank;
      const json& means = list[i]["args"];
      EXPECT_EQ(means.value("plan", ""), said.value("plan", "")) << "rank " << rank;
      EXPECT_EQ(means.value("path", ""), said.value("path", "")) << "rank " << rank;
      EXPECT_EQ(means.contains("blocks"), machine_.on_gpus) << "rank " << rank;
      if (machine_.on_gpus) {
        EXPECT_LE(means.value("blocks", 1000), said.value("blocks", 0)) << "rank " << rank;
      }
      lanes = std::max(lanes, means.value("lanes", 0));
      ports.add(rank, means);
    }
    EXPECT_EQ(lanes, said.value("lanes", 0));
    for (const char* kind : kKinds)
      EXPECT_EQ(ports.count(kind), said["ports"].value(kind, -1)) << kind;
    EXPECT_EQ(ports.nics(machine_), said["nics"].get<std::set<std::string>>());
    std::printf("%-14s %8zu %-28s %2d lanes, %d + %d + %d ports, %zu NICs\n",
                answers_[i].call.collective.c_str(), answers_[i].call.bytes,
                said.value("plan", "").c_str(), lanes, ports.count("peer_memory"),
                ports.count("host_memory"), ports.count("network"), ports.nics(machine_).size());
  }
}

void expect_plans(ncclComm_t comm, const std::string& argument) {
  std::istringstream lines(argument);
  std::string collective, explained;
  for (size_t bytes = 0; lines >> collective >> bytes >> explained;) {
    const char* plan = nullptr;
    EXPECT_EQ(weftPlanOf(comm, collective.c_str(), bytes, &plan), ncclSuccess);
    EXPECT_STREQ(plan, explained.c_str()) << collective << " " << bytes;
  }
}

}  // namespace weft::test
