// Anybody can listen at a socket whose name looks like Weft's, and answer anything.
#include "src/comm/process_status.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>

#include "src/base/handles.h"
#include "src/transport/socket.h"

namespace weft {
namespace {

// A process that answers every request for its status with `text`.
class Stranger {
 public:
  explicit Stranger(const std::string& text) {
    const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "weft-0123456789abcdef";
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    const Fd file(memfd_create("answer", MFD_CLOEXEC));
    EXPECT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    child_ = fork();
    if (child_ != 0) {
      wait_until_it_listens();
      return;
    }
    listen(listener.get(), 4);  // the kernel names the process that calls this
    for (;;) {
      const Fd client(accept(listener.get(), nullptr, nullptr));
      char request[512];
      if (recv(client.get(), request, sizeof request, 0) <= 0) continue;
      send_descriptor(client.get(), text.size(), file.get());
      while (recv(client.get(), request, sizeof request, 0) > 0) continue;  // until it hangs up
    }
  }
  ~Stranger() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  pid_t pid() const { return child_; }

 private:
  void wait_until_it_listens() const {
    for (int tries = 0; tries < 500 && ask_processes(child_, false).empty(); tries++) usleep(10000);
  }
  pid_t child_ = 0;
};

TEST(StatusOfStrangers, IsShownAsNotUnderstood) {
  for (const char* answer :
       {"{}", "[]", "7", R"({"pid": 1, "communicators": [{}]})", R"({"pid": 1, "error": 2})",
        R"({"pid": 1e99, "error": "x", "communicators": []})",
        R"({"pid": -7777777777, "error": "x", "communicators": []})",
        R"({"pid": 1, "communicators": [{"communicator": "a", "name": "", "state": "ready",
            "rank": 0, "nranks": 1, "operation": {}}]})"}) {
    const Stranger stranger(answer);
    const std::vector<std::string> processes = ask_processes(stranger.pid(), false);
    ASSERT_EQ(processes.size(), 1u) << answer;
    const std::string text = status_text(processes);
    EXPECT_NE(text.find("not understood"), std::string::npos) << answer << '\n' << text;
  }
}

// Each level took stack of whoever asked.
TEST(StatusOfStrangers, ThatIsNestedDeeplyIsRefused) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  EXPECT_NE(status_text({deep}).find("not understood"), std::string::npos);
  const Stranger stranger(deep);
  const std::vector<std::string> processes = ask_processes(stranger.pid(), false);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_NE(processes[0].find("nested too deeply"), std::string::npos) << processes[0];
}

TEST(StatusOfStrangers, BringsNoControlCharactersToTheTerminal) {
  const std::string text = status_text(
      {R"({"pid": 5, "communicators": [{"communicator": "a\u001b[2Jb", "name": "\n\u0007",
           "state": "ready", "rank": 0, "nranks": 2}]})"});
  EXPECT_NE(text.find("communicator a?[2Jb '??', 2 ranks"), std::string::npos) << text;
}

TEST(StatusOfStrangers, DoesNotHideTheOthers) {
  const std::string text = status_text(
      {"{}", R"({"pid": 5, "communicators": [{"communicator": "ab", "name": "", "state": "ready",
               "rank": 0, "nranks": 2}]})"});
  EXPECT_NE(text.find("communicator ab, 2 ranks, 1 here"), std::string::npos) << text;
}

}  // namespace
}  // namespace weft
