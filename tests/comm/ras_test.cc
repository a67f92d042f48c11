// The port that ncclras asks: its protocol, answered with the status of the processes of this host.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/comm/checks.h"
#include "tests/support/ports.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void say(const std::string& line) {
    EXPECT_EQ(send(fd_, line.data(), line.size(), 0), static_cast<ssize_t>(line.size()));
  }
  std::string line() {
    std::string text;
    for (char c = 0; recv(fd_, &c, 1, 0) == 1;) {
      text += c;
      if (c == '\n') break;
    }
    return text;
  }
  std::string rest() {
    std::string text;
    for (std::string next; !(next = line()).empty();) text += next;
    return text;
  }

 private:
  int fd_;
};

std::map<std::string, std::string> ras_at(const std::string& host, int port) {
  return {{"NCCL_RAS_ENABLE", "1"}, {"NCCL_RAS_ADDR", host + ":" + std::to_string(port)}};
}

WEFT_SCENARIO(ras_port) {
  const int port = std::stoi(context.argument);
  with_communicator(context, [&](ncclComm_t comm) {
    expect_all_reduce_works(comm, 4096);
    if (context.rank == 0) {
      Client client(port);
      client.say("CLIENT PROTOCOL 2\n");
      EXPECT_EQ(client.line(), "SERVER PROTOCOL 2\n");
      client.say("TIMEOUT 5\nTIMEOUT soon\nSET FORMAT xml\r\n");
      EXPECT_EQ(client.line(), "OK\n");
      EXPECT_EQ(client.line(), "ERROR: Invalid timeout value soon\n");
      EXPECT_EQ(client.line(), "ERROR: Invalid format xml\n");
      client.say("dance\n");
      EXPECT_EQ(client.line(), "ERROR: Unknown command dance\n");
      client.say("VERBOSE STATUS\n");
      const std::string text = client.rest();
      EXPECT_EQ(text.find("NCCL version 2.30.7"), 0u) << text;
      for (const char* part : {"2 ranks, 2 here", "rank 0 ", "rank 1 ", "done", "all_reduce 0"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;

      Client json(port);
      json.say("set format json\nstatus\n");
      EXPECT_EQ(json.line(), "OK\n");
      EXPECT_EQ(json.rest().find("{\"processes\":["), 0u);
    }
    expect_all_reduce_works(comm);
  });
}

// Clients are served one after the other.
WEFT_SCENARIO(ras_slow_client) {
  with_communicator(context, [&](ncclComm_t) {
    Client silent(std::stoi(context.argument));
    silent.say("CLIENT PROT");
    Client other(std::stoi(context.argument));
    other.say("CLIENT PROTOCOL 2\n");
    EXPECT_EQ(other.line(), "SERVER PROTOCOL 2\n");
    EXPECT_EQ(silent.rest(), "") << "the session is over";
  });
}

TEST(Ras, ASlowClientDoesNotHoldThePort) {
  const int port = free_port();
  ProcessOptions options;
  options.argument = std::to_string(port);
  options.environment = [&](int) { return ras_at("127.0.0.1", port); };
  run_ranks_as_processes("ras_slow_client", 1, options);
}

WEFT_SCENARIO(ras_open) {
  with_communicator(context, [](ncclComm_t comm) { expect_all_reduce_works(comm); });
}

TEST(Ras, WarnsIfOtherHostsCanAsk) {
  for (const char* host : {"0.0.0.0", "127.0.0.1"}) {
    ProcessOptions options;
    options.environment = [&](int) {
      auto environment = ras_at(host, free_port());
      environment["NCCL_DEBUG"] = "WARN";
      return environment;
    };
    const auto results = run_processes("ras_open", 1, options);
    EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
    EXPECT_EQ(results[0].output.find("can read the job's status") != std::string::npos,
              std::string(host) == "0.0.0.0")
        << results[0].output;
  }
}

TEST(Ras, AnswersTheClientWithTheStatusOfAllProcesses) {
  const int port = free_port();
  ProcessOptions options;
  options.argument = std::to_string(port);
  options.environment = [&](int) { return ras_at("127.0.0.1", port); };
  run_ranks_as_processes("ras_port", 2, options);
}

}  // namespace
}  // namespace weft::test
