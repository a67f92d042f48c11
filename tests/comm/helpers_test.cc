// Hosts that help: `weft serve` beside ranks that have a host each. Results are right, a helper
// that dies is a fault that names it, and the next communicator goes on without it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "tests/comm/checks.h"
#include "tests/support/ports.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr const char* kSecretText = "of the helpers' test";

// A running `weft serve`. The destructor ends it.
class Serving {
 public:
  explicit Serving(std::vector<std::string> options = {}, const std::string& secret = kSecretText)
      : address_("127.0.0.1:" + std::to_string(free_port())) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
    options.insert(options.begin(), {WEFT_TOOL, "serve", address_});
    process_ = fork();
    if (process_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      setenv("NCCL_HOSTID", address_.c_str(), 1);
      setenv("NCCL_SOCKET_IFNAME", "lo", 1);
      setenv("WEFT_SECRET", secret.c_str(), 1);
      std::vector<char*> words;
      for (std::string& option : options) words.push_back(option.data());
      words.push_back(nullptr);
      execv(WEFT_TOOL, words.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
    EXPECT_TRUE(says("serves at")) << text_;
  }
  ~Serving() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(output_);
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  const std::string& address() const { return address_; }
  pid_t process() const { return process_; }
  // Waits for the words in its output.
  bool says(const std::string& words) {
    char some[4096];
    while (text_.find(words) == std::string::npos) {
      const ssize_t got = read(output_, some, sizeof some);
      if (got <= 0) return false;
      text_.append(some, static_cast<size_t>(got));
    }
    return true;
  }
  const std::string& text() const { return text_; }

 private:
  const std::string address_;
  pid_t process_ = -1;
  int output_ = -1;
  std::string text_;
};

ProcessOptions helped_by(const std::string& helpers, const std::string& argument = "") {
  ProcessOptions options;
  options.argument = argument;
  options.environment = [helpers](int rank) {
    auto environment = separate_hosts(rank);
    environment["WEFT_HELPERS"] = helpers;
    environment["WEFT_HELPERS_FROM"] = "64K";
    environment["WEFT_SECRET"] = kSecretText;
    environment["NCCL_DEBUG"] = "WARN";
    return environment;
  };
  return options;
}

std::string plan_of(ncclComm_t comm, size_t bytes) {
  const char* plan = "";
  WEFT_OK(weftPlanOf(comm, "all_reduce", bytes, &plan));
  return plan;
}

void expect_right_sums(ncclComm_t comm, int nranks, int rank) {
  for (const size_t count : {size_t{1} << 14, size_t{100003}, size_t{1} << 20}) {
    std::vector<float> input(count), output(count, -1);
    for (size_t i = 0; i < count; i++) input[i] = static_cast<float>((i + 3u * rank) % 11);
    const auto expected = [&](size_t i, ncclRedOp_t op) {
      float sum = 0, most = 0;
      for (int r = 0; r < nranks; r++) {
        const auto value = static_cast<float>((i + 3u * r) % 11);
        sum += value;
        most = std::max(most, value);
      }
      return op == ncclMax ? most : op == ncclAvg ? sum / static_cast<float>(nranks) : sum;
    };
    for (const ncclRedOp_t op : {ncclSum, ncclMax, ncclAvg}) {
      WEFT_OK(ncclAllReduce(input.data(), output.data(), count, ncclFloat32, op, comm, nullptr));
      size_t wrong = 0;
      for (size_t i = 0; i < count; i++) wrong += output[i] != expected(i, op) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << count << " elements, operator " << op;
    }
    WEFT_OK(ncclAllReduce(input.data(), input.data(), count, ncclFloat32, ncclSum, comm, nullptr));
    EXPECT_EQ(input[count - 1], expected(count - 1, ncclSum)) << "in place";
  }
}

WEFT_SCENARIO(helped_sums) {
  with_communicator(context, [&](ncclComm_t comm) {
    EXPECT_EQ(plan_of(comm, 1 << 20), context.argument);
    EXPECT_NE(plan_of(comm, 1 << 10), "helped");
    expect_right_sums(comm, context.nranks, context.rank);
    expect_alltoall_works(comm);
    // Several calls of a group, some with the helpers and some without.
    std::vector<float> large(1 << 16, 1), small(16, 1), other(1 << 15, 2);
    WEFT_OK(ncclGroupStart());
    for (std::vector<float>* data : {&large, &small, &other})
      WEFT_OK(ncclAllReduce(data->data(), data->data(), data->size(), ncclFloat32, ncclSum, comm,
                            nullptr));
    WEFT_OK(ncclGroupEnd());
    EXPECT_EQ(large[100], static_cast<float>(context.nranks));
    EXPECT_EQ(small[10], static_cast<float>(context.nranks));
    EXPECT_EQ(other[100], 2 * static_cast<float>(context.nranks));
  });
}

// The bytes of all ranks are equal, and the sums within the bound.
void expect_compressed_sums(ncclComm_t comm, int nranks, int rank, ncclDataType_t type) {
  const size_t count = (size_t{1} << 20) + 77;
  std::vector<float> input(count), output(count);
  std::vector<uint16_t> in(count), out(count);
  for (size_t i = 0; i < count; i++) {
    input[i] = static_cast<float>((i * 7 + 3u * static_cast<size_t>(rank)) % 100) / 8;
    uint32_t bits = 0;
    std::memcpy(&bits, &input[i], sizeof bits);
    in[i] = static_cast<uint16_t>(bits >> 16);  // exact as bfloat16
  }
  const bool wide = type == ncclFloat32;
  WEFT_OK(ncclAllReduce(wide ? static_cast<void*>(input.data()) : in.data(),
                        wide ? static_cast<void*>(output.data()) : out.data(), count, type, ncclSum,
                        comm, nullptr));
  size_t wrong = 0, changed = 0;
  for (size_t i = 0; i < count; i++) {
    float sum = 0;
    for (int r = 0; r < nranks; r++)
      sum += static_cast<float>((i * 7 + 3u * static_cast<size_t>(r)) % 100) / 8;
    if (!wide) {
      const uint32_t bits = uint32_t{out[i]} << 16;
      std::memcpy(&output[i], &bits, sizeof bits);
    }
    const float off = std::abs(output[i] - sum);
    // Inputs and sums lose a 254th of their largest value; bfloat16 has 8 bits.
    wrong +=
        off > 2.0f * 12.5f * static_cast<float>(nranks) * (1 / 254.0f + (wide ? 0 : 1 / 256.0f));
    changed += off > 1e-3f ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(changed, count / 10) << "it was not compressed";
  std::vector<float> all(count * static_cast<size_t>(nranks));
  WEFT_OK(ncclAllGather(output.data(), all.data(), count, ncclInt32, comm, nullptr));
  for (size_t r = 0; r < static_cast<size_t>(nranks); r++)
    EXPECT_EQ(std::memcmp(all.data() + count * r, output.data(), 4 * count), 0) << r;
}

WEFT_SCENARIO(helped_and_compressed) {
  with_communicator(context, [&](ncclComm_t comm) {
    EXPECT_EQ(plan_of(comm, 1 << 20), "helped");
    WEFT_OK(weftCommSetCompression(comm, "all_reduce=int8"));
    EXPECT_EQ(plan_of(comm, 4 << 20), "helped+int8:block=256");
    for (const ncclDataType_t type : {ncclFloat32, ncclBfloat16})
      expect_compressed_sums(comm, context.nranks, context.rank, type);
    weftCompression_t report{};
    WEFT_OK(weftCompressionReport(comm, &report));
    EXPECT_EQ(report.calls, 2u);
    EXPECT_EQ(report.passes, 2);
    EXPECT_LT(report.bytes_after, 0.6 * static_cast<double>(report.bytes_before));
    // Losses are kept on ranks only.
    WEFT_OK(weftCommSetCompression(comm, "all_reduce=int8:feedback"));
    EXPECT_EQ(plan_of(comm, 4 << 20).find("helped"), std::string::npos);
    WEFT_OK(weftCommSetCompression(comm, "off"));
    expect_right_sums(comm, context.nranks, context.rank);
  });
}

TEST(HostsThatHelp, SumWhatIsCompressed) {
  Serving first, second;
  const std::string both = first.address() + "," + second.address();
  for (const int n : {2, 3}) run_ranks_as_processes("helped_and_compressed", n, helped_by(both));
  EXPECT_TRUE(second.says("the ranks are done")) << second.text();
}

TEST(HostsThatHelp, SumForRanksAndOutliveThem) {
  Serving first, second;
  const std::string both = first.address() + "," + second.address();
  run_ranks_as_processes("helped_sums", 3, helped_by(both, "helped"));
  EXPECT_TRUE(first.says("helper 0 of 2 for 3 ranks, ends after")) << first.text();
  EXPECT_TRUE(second.says("the ranks are done")) << second.text();
  // More helpers than ranks have use for, and another number of ranks.
  Serving third;
  run_ranks_as_processes("helped_sums", 2, helped_by(both + "," + third.address(), "helped"));
  EXPECT_TRUE(first.says("helper 0 of 2 for 2 ranks, ends after")) << first.text();
}

std::string warnings_of(const std::string& scenario, const ProcessOptions& options) {
  std::string output;
  for (const ProcessResult& result : run_processes(scenario, 2, options)) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
    output += result.output;
  }
  return output;
}

WEFT_SCENARIO(sums_alone) {
  with_communicator(context, [&](ncclComm_t comm) {
    EXPECT_NE(plan_of(comm, 1 << 20), "helped");
    expect_all_reduce_works(comm, 1 << 16);
  });
}

TEST(HostsThatHelp, AreNotUsedIfTheyCannotOrMayNot) {
  const std::string nobody = "127.0.0.1:" + std::to_string(free_port());
  std::string output = warnings_of("sums_alone", helped_by(nobody));
  EXPECT_NE(output.find("helper " + nobody + " is not used"), std::string::npos) << output;
  const Serving stranger({}, "another secret");
  output = warnings_of("sums_alone", helped_by(stranger.address()));
  EXPECT_NE(output.find("WEFT_SECRET"), std::string::npos) << output;
  const Serving small({"--memory", "1M"});
  output = warnings_of("sums_alone", helped_by(small.address()));
  EXPECT_NE(output.find("it has no room"), std::string::npos) << output;
}

// A port that takes connections and never answers.
class Silent {
 public:
  Silent() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), length), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Silent() { close(fd_); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

WEFT_SCENARIO(asks_silent_hosts) {
  const auto begin = std::chrono::steady_clock::now();
  with_communicator(context, [&](ncclComm_t comm) {
    // Two seconds each, one after the other, would be eight.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(std::chrono::seconds(6)));
    EXPECT_EQ(plan_of(comm, 1 << 20), "helped");
    expect_right_sums(comm, context.nranks, context.rank);
  });
}

// With four ranks four are asked at first, and then as many as did not answer.
TEST(HostsThatHelp, AreAskedSideBySide) {
  const Silent silent[4];
  Serving helps;
  std::string all;
  for (const Silent& one : silent) all += one.address() + ",";
  run_ranks_as_processes("asks_silent_hosts", 4, helped_by(all + helps.address()));
}

// The argument: the process id of the helper that dies, then its address.
WEFT_SCENARIO(helper_dies) {
  const pid_t victim = std::stoi(context.argument);
  const std::string address = context.argument.substr(context.argument.find(' ') + 1);
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank));
  ASSERT_EQ(plan_of(comm, 4 << 20), "helped");
  std::vector<float> data(1 << 20, 1.0f);
  WEFT_OK(
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
  wait_until_all_are_here(comm, 0);
  if (context.rank == 0) kill(victim, SIGKILL);
  const auto died = std::chrono::steady_clock::now();
  ncclResult_t state = ncclSuccess;
  // Idle or in a call, every rank is told.
  while (state == ncclSuccess && std::chrono::steady_clock::now() - died < std::chrono::seconds(20))
    if (context.rank == 1) {
      state =
          ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr);
    } else {
      WEFT_OK(ncclCommGetAsyncError(comm, &state));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_LT(std::chrono::steady_clock::now() - died, patience(std::chrono::seconds(2)));
  const std::string text = ncclGetLastError(comm);
  EXPECT_NE(text.find("helper " + address + " died"), std::string::npos) << text;
  WEFT_OK(ncclCommAbort(comm));
  // The other helper is still there.
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids[1], context.rank));
  EXPECT_EQ(plan_of(comm, 4 << 20), "helped");
  expect_right_sums(comm, context.nranks, context.rank);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(HostsThatHelp, ThatDieAreNamedAndTheNextCommunicatorGoesOnWithoutThem) {
  Serving stays, dies;
  ProcessOptions options = helped_by(stays.address() + "," + dies.address(),
                                     std::to_string(dies.process()) + " " + dies.address());
  options.ids = 2;
  options.limit = std::chrono::seconds(90);
  run_ranks_as_processes("helper_dies", 2, options);
  EXPECT_TRUE(stays.says("helper 0 of 1 for 2 ranks, ends after")) << stays.text();
}

// Ranks that die leave the helper able to serve others.
WEFT_SCENARIO(rank_dies_with_helpers) {
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank));
  std::vector<float> data(1 << 20, 1.0f);
  WEFT_OK(
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
  wait_until_all_are_here(comm, 0);
  if (context.rank == 0) kill(getpid(), SIGKILL);
  EXPECT_EQ(
      ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr),
      ncclRemoteError);
  const std::string text = ncclGetLastError(comm);
  EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
  WEFT_OK(ncclCommAbort(comm));
}

TEST(HostsThatHelp, SurviveTheJobsTheyServe) {
  Serving serving;
  const auto results = run_processes("rank_dies_with_helpers", 2, helped_by(serving.address()));
  EXPECT_EQ(results[1].exit_code, 0) << results[1].output;
  EXPECT_TRUE(serving.says("helper 0 of 1 for 2 ranks, ends after 1 calls")) << serving.text();
  run_ranks_as_processes("helped_sums", 2, helped_by(serving.address(), "helped"));
}

WEFT_SCENARIO(measured_helpers) {
  with_communicator(
      context, [&](ncclComm_t comm) { expect_right_sums(comm, context.nranks, context.rank); });
}

// Which plan is faster depends on the machine; the results do not.
TEST(HostsThatHelp, AreMeasuredAtInit) {
  Serving serving;
  ProcessOptions options = helped_by(serving.address());
  const auto fixed = options.environment;
  options.environment = [fixed](int rank) {
    auto environment = fixed(rank);
    environment.erase("WEFT_HELPERS_FROM");
    environment["NCCL_DEBUG"] = "INFO";
    return environment;
  };
  const std::string output = warnings_of("measured_helpers", options);
  EXPECT_NE(output.find("helpers: 8 MiB in"), std::string::npos) << output;
}

}  // namespace
}  // namespace weft::test
