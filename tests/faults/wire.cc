// Damage on the way between hosts, and what somebody on the way can read.
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "tests/faults/blows.h"
#include "tests/faults/judge.h"
#include "tests/faults/scenario.h"
#include "tests/faults/wire_tap.h"

namespace weft::test {
namespace {

constexpr std::string_view kSecretWords = "nobody but the ranks should read this. ";

// One bit of what rank 1 sends changes on the way.
void piece_is_damaged(Player& player, uint64_t bit) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  player.stage().meet(0, player.nranks());
  if (player.rank() == 1) {
    player.stage().mark(Stage::kFault);
    WireTap::damage_next(WireTap::kLeastData, bit, [] {});
  }
  player.expect_failure(player.all_reduce_until_failure(comm), ncclSystemError,
                        {"rank [02] of 3: waiting .* and rank 1 failed", "was changed on the way"});
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

void data_is_damaged(Player& player) { piece_is_damaged(player, 8 * 2000 - 4); }
// The piece begins with its size. A receiver that believes another one waits for what never comes.
void size_is_damaged(Player& player) { piece_is_damaged(player, 14); }

// All ranks send words, and look at what they send.
void words_travel(Player& player, bool readable) {
  WireTap::look_for(kSecretWords);
  ncclComm_t comm = player.join();
  std::vector<char> words(player.bytes()), all(player.bytes() * player.nranks());
  for (size_t i = 0; i < words.size(); i++) words[i] = kSecretWords[i % kSecretWords.size()];
  player.expect_success(player.call("all_gather", comm, [&] {
    return ncclAllGather(words.data(), all.data(), words.size(), ncclInt8, comm, nullptr);
  }));
  for (int rank = 0; rank < player.nranks(); rank++)
    EXPECT_EQ(std::memcmp(&all[words.size() * rank], words.data(), words.size()), 0);
  EXPECT_EQ(WireTap::has_shown(), readable);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}
void words_are_hidden(Player& player) { words_travel(player, false); }
void words_are_readable(Player& player) { words_travel(player, true); }

// Rank 0 loses one of its connections, in each communicator another one. Some serve nobody any
// more. Whatever happens then, all ranks read the same.
void loses_connections(Player& player) {
  constexpr int kConnections = 8;
  for (int number = 0; number < kConnections; number++) {
    ncclComm_t comm = player.join(number);
    player.expect_works(comm);
    player.stage().meet(1 + number, player.nranks());
    if (player.rank() == 0) lose_connection(static_cast<size_t>(number));
    Ending ending;
    for (int call = 0; call < 300 && ending.code == ncclSuccess; call++)
      ending = player.all_reduce(comm);
    if (ending.code == ncclSuccess) ending = player.async_error(comm, 0.3);
    print_record("connection" + std::to_string(number), ending.code,
                 ending.code == ncclSuccess ? "nothing" : ending.text);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
}

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
      on_the_way("damaged_size_and_checked", "the same in the size of a record (WEFT_WIRE=check)",
                 size_is_damaged, 12'000, check),
      on_the_way("damaged_size_and_encrypted", "the same (WEFT_WIRE=encrypt)", size_is_damaged,
                 12'000, encrypt),
      on_the_way("encrypted", "nothing on the wire can be read (WEFT_WIRE=encrypt)",
                 words_are_hidden, 1 << 20, encrypt),
      on_the_way("not_encrypted", "the same without: data can be read", words_are_readable, 1 << 20,
                 plain),
      {"loses_connections", "rank 0 loses its connections, one per communicator", 4,
       loses_connections, 6},
      {"loses_connections_hosts",
       "the same, every rank on its own host",
       4,
       loses_connections,
       6,
       {},
       kOwnHosts},
  };
}

}  // namespace weft::test
