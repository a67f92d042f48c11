// `weft status` shows a job that waits: who is in which call, and for whom.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/faults/scenario.h"
#include "tests/support/patterns.h"

namespace weft::test {
namespace {

std::string output_of(const std::string& command) {
  // A check for leaks takes seconds.
  FILE* pipe = popen(("ASAN_OPTIONS=detect_leaks=0 " + command).c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  pclose(pipe);
  return text;
}

// Rank 0 waits in its second call. Rank 1 has made one call and asks.
void waits_are_shown(Player& player) {
  ncclComm_t comm = player.join();
  player.expect_works(comm);
  if (player.rank() == 0) {
    player.expect_success(player.all_reduce(comm));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    const std::string tool = WEFT_TOOL " status ", waiting = std::to_string(player.stage().pid(0));
    const std::string json = output_of(tool + waiting + " --json");
    for (const char* pattern :
         {"\"state\":\"ready\"", "\"nranks\":2", "\"phase\":\"running\"", "\"kind\":\"all_reduce\"",
          "\"number\":1,", "\"bytes\":4096", "\"op\":\"max\"", "\"waits\":\\{\"for\":1,"})
      EXPECT_TRUE(says(json, pattern)) << pattern << " is not in " << json;
    const std::string text = output_of(tool + "all");
    EXPECT_TRUE(says(text, ("rank 0 +pid " + waiting +
                            " .*running .*all_reduce 1, 4096 bytes "
                            "float32 max")
                               .c_str()))
        << text;
    EXPECT_TRUE(says(text, "waits [0-9.]+ s for rank 1")) << text;
    EXPECT_TRUE(says(text, "rank 1 .*done .* ago: all_reduce 0, 4000 bytes int32 sum")) << text;
    EXPECT_EQ(output_of(tool + "1 2>/dev/null"), "") << "process 1 is no job of Weft";
    player.expect_success(player.all_reduce(comm));
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace

std::vector<FaultScenario> status_scenarios() {
  return {
      {"waits_are_shown", "weft status of a job whose rank 1 does not come", 2, waits_are_shown}};
}

}  // namespace weft::test
