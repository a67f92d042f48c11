// Damage on the way between hosts, and what somebody on the way can read. This program's own send()
// and sendmsg() stand in for the network.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <string_view>
#include <vector>

#include "tests/faults/scenario.h"

namespace {

// Control messages are shorter.
constexpr size_t kLeastData = 2000;
constexpr std::string_view kSecretWords = "nobody but the ranks should read this. ";

std::atomic<bool> damages{false};  // the next piece of data; then it is done
std::atomic<bool> has_shown{false};

bool is_data(int fd, size_t size) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return size >= kLeastData && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
         domain == AF_INET;
}

void look_at(const void* data, size_t size) {
  const std::string_view text(static_cast<const char*>(data), size);
  if (text.find(kSecretWords) != std::string_view::npos) has_shown = true;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] ssize_t send(int fd, const void* data, size_t size,
                                                       int flags) {
  using Send = ssize_t (*)(int, const void*, size_t, int);
  static const auto real = reinterpret_cast<Send>(dlsym(RTLD_NEXT, "send"));
  if (!is_data(fd, size)) return real(fd, data, size, flags);
  look_at(data, size);
  if (!damages.exchange(false)) return real(fd, data, size, flags);
  std::vector<char> changed(static_cast<const char*>(data), static_cast<const char*>(data) + size);
  changed[size / 2] ^= 16;
  return real(fd, changed.data(), size, flags);
}

extern "C" [[gnu::visibility("default")]] ssize_t sendmsg(int fd, const msghdr* message,
                                                          int flags) {
  using SendMessage = ssize_t (*)(int, const msghdr*, int);
  static const auto real = reinterpret_cast<SendMessage>(dlsym(RTLD_NEXT, "sendmsg"));
  for (size_t i = 0; i < message->msg_iovlen; i++)
    if (is_data(fd, message->msg_iov[i].iov_len))
      look_at(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
  return real(fd, message, flags);
}

namespace weft::test {
namespace {

// One bit of what rank 1 sends changes on the way.
void data_is_damaged(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    player.stage().mark(Stage::kFault);
    damages = true;
  }
  player.expect_failure(player.all_reduce_until_failure(comm), ncclSystemError,
                        {"rank [02] of 3: waiting .* and rank 1 failed", "was changed on the way"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

// All ranks send words, and look at what they send.
void words_travel(Player& player, bool readable) {
  ncclComm_t comm = player.join();
  std::vector<char> words(player.bytes()), all(player.bytes() * player.nranks());
  for (size_t i = 0; i < words.size(); i++) words[i] = kSecretWords[i % kSecretWords.size()];
  player.expect_success(player.call("all_gather", comm, [&] {
    return ncclAllGather(words.data(), all.data(), words.size(), ncclInt8, comm, nullptr);
  }));
  for (int rank = 0; rank < player.nranks(); rank++)
    EXPECT_EQ(std::memcmp(&all[words.size() * rank], words.data(), words.size()), 0);
  EXPECT_EQ(has_shown, readable);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}
void words_are_hidden(Player& player) { words_travel(player, false); }
void words_are_readable(Player& player) { words_travel(player, true); }

using Environment = std::map<std::string, std::string>;

FaultScenario on_the_way(const char* name, const char* what, void (*play)(Player&), size_t bytes,
                         const Environment& environment) {
  return {name, what, 3, play, 2, {}, kOwnHosts, bytes, environment};
}

}  // namespace

std::vector<FaultScenario> wire_scenarios() {
  const Environment plain = {{"WEFT_LEND_PAGES", "0"}}, check = {{"WEFT_WIRE", "check"}},
                    encrypt = {{"WEFT_WIRE", "encrypt"}};
  return {
      on_the_way("damaged_and_checked", "a bit changes between hosts (WEFT_WIRE=check)",
                 data_is_damaged, 40'000, check),
      on_the_way("damaged_and_checked_1M", "the same, 1 MB", data_is_damaged, 1 << 20, check),
      on_the_way("damaged_and_encrypted", "a bit changes between hosts (WEFT_WIRE=encrypt)",
                 data_is_damaged, 40'000, encrypt),
      on_the_way("encrypted", "nothing on the wire can be read (WEFT_WIRE=encrypt)",
                 words_are_hidden, 1 << 20, encrypt),
      on_the_way("not_encrypted", "the same without: data can be read", words_are_readable, 1 << 20,
                 plain),
  };
}

}  // namespace weft::test
