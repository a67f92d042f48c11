// The events that profiler plugins get about messages between hosts, and about the proxy threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/support/device.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

constexpr int kColl = 2, kP2p = 4, kProxyOp = 8, kProxyStep = 16, kProxyCtrl = 32, kKernel = 64;

// Floats in memory that the library reaches.
using Floats = std::unique_ptr<float[], void (*)(void*)>;
Floats ones(size_t count) {
  Floats made(static_cast<float*>(shared_memory(count * sizeof(float))), free_shared_memory);
  std::fill_n(made.get(), count, 1.0f);
  return made;
}

// Several slices, small messages in a row that may share a network message, and both directions
// between two ranks. Rank 1 also sends before rank 0 has made its call.
WEFT_SCENARIO(calls_between_hosts) {
  const Floats input = ones(400000), output = ones(400000);
  float *data = input.get(), *other = output.get();
  with_communicator(context, [&](ncclComm_t comm) {
    const cudaStream_t stream = stream_of(comm);
    WEFT_OK(ncclAllReduce(data, other, 400000, ncclFloat, ncclSum, comm, stream));
    for (int i = 0; i < 3; i++) WEFT_OK(ncclBroadcast(data, data, 7, ncclFloat, 1, comm, stream));
    WEFT_OK(ncclGroupStart());
    for (const size_t count : {9u, 11u}) {
      WEFT_OK(ncclSend(data, count, ncclFloat, 1 - context.rank, comm, stream));
      WEFT_OK(ncclRecv(other, count, ncclFloat, 1 - context.rank, comm, stream));
    }
    WEFT_OK(ncclGroupEnd());
    EXPECT_STREQ(finish(comm), "");
    // Until the proxy has nothing to do and sleeps, however busy the machine is.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
}

// With more than two hosts, GPUs write data for several peers once.
WEFT_SCENARIO(sums_between_hosts) {
  const Floats input = ones(1 << 18), output = ones(1 << 18);
  with_communicator(context, [&](ncclComm_t comm) {
    for (int i = 0; i < 3; i++)
      WEFT_OK(ncclAllReduce(input.get(), output.get(), 1 << 18, ncclFloat, ncclSum, comm,
                            stream_of(comm)));
    EXPECT_STREQ(finish(comm), "");
    EXPECT_EQ(output[7], static_cast<float>(context.nranks));
  });
}

struct Event {
  int kind = 0;
  size_t parent = 0;
  std::string text;  // the rest of its line
  bool open = true;
  std::vector<int> states;
  uint64_t bytes = 0;  // of its last state
  std::vector<size_t> steps;
};

// The events of a rank by number. Also checks the invariants of events.
std::map<size_t, Event> events_of(const std::string& path) {
  std::map<size_t, Event> events;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string word, ignored;
    size_t id = 0;
    in >> word >> id;
    if (word == "start") {
      Event event;
      in >> ignored >> event.kind >> ignored >> event.parent;
      std::getline(in, event.text);
      if (event.kind == kProxyOp || event.kind == kProxyStep) {
        EXPECT_TRUE(events.contains(event.parent) && events[event.parent].open) << line;
        const int above = events[event.parent].kind;
        EXPECT_TRUE(event.kind == kProxyStep ? above == kProxyOp : above == kColl || above == kP2p)
            << line;
        events[event.parent].steps.push_back(id);
      }
      EXPECT_TRUE(events.emplace(id, event).second) << line;
    } else if (word == "stop" || word == "state") {
      EXPECT_TRUE(events.contains(id) && events[id].open) << line;
      Event& event = events[id];
      if (word == "stop") {
        event.open = false;
        continue;
      }
      int state = 0;
      in >> ignored >> state >> ignored >> event.bytes;
      event.states.push_back(state);
    }
  }
  unlink(path.c_str());
  for (const auto& [id, event] : events) EXPECT_FALSE(event.open) << id << " never stops";
  return events;
}

size_t count_of(const std::map<size_t, Event>& events, int kind) {
  size_t count = 0;
  for (const auto& [id, event] : events) count += event.kind == kind ? 1u : 0u;
  return count;
}

// The bytes that calls with `call` in their text sent or received, and the number of such calls.
std::pair<uint64_t, size_t> traffic_of(const std::map<size_t, Event>& events,
                                       const std::string& call, const std::string& direction,
                                       bool by_steps) {
  uint64_t bytes = 0;
  size_t operations = 0;
  for (const auto& [id, event] : events) {
    if (event.kind != kProxyOp || event.text.find(direction) == std::string::npos) continue;
    if (events.at(event.parent).text.find(call) == std::string::npos) continue;
    operations++;
    if (!by_steps) bytes += event.bytes;
    for (const size_t step : event.steps) bytes += by_steps ? events.at(step).bytes : 0;
  }
  return {bytes, operations};
}

ProcessOptions profiled(int version, const std::string& path, const std::vector<int>& masks) {
  ProcessOptions options;
  options.environment = [=](int rank) {
    auto variables = separate_hosts(rank);
    variables["NCCL_PROFILER_PLUGIN"] =
        WEFT_TEST_PROFILERS "/libnccl-profiler-test" + std::to_string(version) + ".so";
    variables["WEFT_TEST_RANK"] = std::to_string(rank);
    variables["WEFT_TEST_PROFILE"] = path;
    variables["WEFT_TEST_PROFILE_MASK"] = std::to_string(masks[static_cast<size_t>(rank)]);
    return variables;
  };
  return options;
}

class ProxyEventsOf : public testing::TestWithParam<int> {};

TEST_P(ProxyEventsOf, TellOfAllMessagesOfTheirCalls) {
  const bool old = GetParam() < 4;  // operations have sums, steps get bytes later
  const std::string path = "/tmp/weft-proxy-events." + std::to_string(getpid()) + ".";
  run_ranks_as_processes("calls_between_hosts", 2, profiled(GetParam(), path, {0xfff, 0xfff}));
  for (int rank = 0; rank < 2; rank++) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const auto events = events_of(path + std::to_string(rank));
    const auto traffic = [&](const char* call, const char* number, const char* direction) {
      return traffic_of(events, old ? number : call, direction, !old);
    };
    using Traffic = std::pair<uint64_t, size_t>;
    EXPECT_EQ(traffic("AllReduce", "coll 4", "sends").first, 1600000u);
    EXPECT_EQ(traffic("AllReduce", "coll 4", "receives").first, 1600000u);
    EXPECT_EQ(traffic("Broadcast", "coll 0", rank == 1 ? "sends" : "receives"), Traffic(84, 3));
    EXPECT_EQ(traffic("Broadcast", "coll 0", rank == 1 ? "receives" : "sends"), Traffic(0, 0));
    EXPECT_EQ(traffic("Send", "p2p 6", "sends"), Traffic(80, 2));
    EXPECT_EQ(traffic("Recv", "p2p 7", "receives"), Traffic(80, 2));
    EXPECT_EQ(traffic("Send", "p2p 6", "receives").second, 0u);
    const std::string link =
        " rank " + std::to_string(rank) + " peer " + std::to_string(1 - rank) + " channel ";
    for (const auto& [id, event] : events) {
      SCOPED_TRACE(std::to_string(id) + event.text);
      using States = std::vector<int>;
      if (event.kind == kProxyOp) {
        EXPECT_NE(event.text.find(link), std::string::npos);
        EXPECT_EQ(event.text.find("another process"), std::string::npos);
        const bool sends = event.text.starts_with(" sends");
        if (old)
          EXPECT_EQ(event.states.back(), sends ? 3 : 7);
        else
          EXPECT_EQ(event.states, States{19});
      } else if (event.kind == kProxyStep) {
        const bool sends = events.at(event.parent).text.starts_with(" sends");
        EXPECT_EQ(event.states, !sends ? States({10, 11, 12})
                                : old  ? States({8, 9})
                                       : States({8, 20, 9}));
      } else if (event.kind == kKernel) {
        EXPECT_EQ(event.states, States{22});  // its end; only with GPUs
      } else if (event.kind != kProxyCtrl) {
        EXPECT_EQ(event.states, States());
      }
    }
    EXPECT_GE(count_of(events, kProxyCtrl), 1u);
  }
}
INSTANTIATE_TEST_SUITE_P(Versions, ProxyEventsOf, testing::Values(1, 4, 5));

TEST(ProxyEvents, TellOfEveryPeersMessages) {
  const std::string path = "/tmp/weft-proxy-sums." + std::to_string(getpid()) + ".";
  run_ranks_as_processes("sums_between_hosts", 4, profiled(5, path, std::vector<int>(4, 0xfff)));
  for (int rank = 0; rank < 4; rank++) {
    const auto events = events_of(path + std::to_string(rank));
    for (const char* direction : {"sends", "receives"})
      EXPECT_EQ(traffic_of(events, "AllReduce", direction, true).first, 3u * 3 * (1 << 19))
          << "rank " << rank << " " << direction;
  }
}

TEST(ProxyEvents, AreThoseThatThePluginAsksForAndWhatIsAboveThem) {
  const std::string path = "/tmp/weft-proxy-mask." + std::to_string(getpid()) + ".";
  run_ranks_as_processes("calls_between_hosts", 2,
                         profiled(5, path, {kProxyOp, kColl | kProxyCtrl}));
  const auto of_ops = events_of(path + "0"), of_calls = events_of(path + "1");
  EXPECT_EQ(count_of(of_ops, kColl), 4u);
  EXPECT_EQ(count_of(of_ops, kP2p), 4u);
  EXPECT_GE(count_of(of_ops, kProxyOp), 9u);
  EXPECT_EQ(count_of(of_ops, kProxyStep), 0u);
  EXPECT_EQ(count_of(of_ops, kProxyCtrl), 0u);
  EXPECT_EQ(count_of(of_calls, kColl), 4u);
  for (const int kind : {kP2p, kProxyOp, kProxyStep}) EXPECT_EQ(count_of(of_calls, kind), 0u);
  EXPECT_GE(count_of(of_calls, kProxyCtrl), 1u);
}

}  // namespace
}  // namespace weft::test
