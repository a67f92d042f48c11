// The registry of scenarios and the started process's side.
#include "tests/support/scenario.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/support/threads.h"

namespace weft::test {
namespace {

std::map<std::string, Scenario>& registry() {
  static std::map<std::string, Scenario> scenarios;
  return scenarios;
}

std::string to_hex(const ncclUniqueId& id) {
  std::string hex;
  for (char c : id.internal) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    hex += digits;
  }
  return hex;
}

std::vector<ncclUniqueId> from_hex(const std::string& hex) {
  std::vector<ncclUniqueId> ids(hex.size() / (2 * NCCL_UNIQUE_ID_BYTES));
  for (size_t i = 0; i < ids.size() * NCCL_UNIQUE_ID_BYTES; ++i) {
    ids[i / NCCL_UNIQUE_ID_BYTES].internal[i % NCCL_UNIQUE_ID_BYTES] =
        static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return ids;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

RegisterScenario::RegisterScenario(const char* name, Scenario scenario) {
  registry()[name] = scenario;
}

std::map<std::string, std::string> scenario_environment(const std::string& scenario,
                                                        const ProcessContext& context) {
  std::string ids;
  for (const ncclUniqueId& id : context.ids) ids += to_hex(id);
  return {{"WEFT_TEST_SCENARIO", scenario},
          {"WEFT_TEST_RANK", std::to_string(context.rank)},
          {"WEFT_TEST_NRANKS", std::to_string(context.nranks)},
          {"WEFT_TEST_IDS", ids},
          {"WEFT_TEST_ARGUMENT", context.argument}};
}

bool play_scenario(int* exit_code) {
  const std::string name = environment("WEFT_TEST_SCENARIO");
  if (name.empty()) return false;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // this process must not outlive its parent
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  *exit_code = 1;
  const auto found = registry().find(name);
  if (found == registry().end()) {
    std::fprintf(stderr, "no scenario '%s' in this program\n", name.c_str());
    return true;
  }
  try {
    found->second({std::stoi(environment("WEFT_TEST_RANK")),
                   std::stoi(environment("WEFT_TEST_NRANKS")),
                   from_hex(environment("WEFT_TEST_IDS")), environment("WEFT_TEST_ARGUMENT")});
    *exit_code = testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
  }
  return true;
}

void with_communicator(const ProcessContext& context, const std::function<void(ncclComm_t)>& fn) {
  ncclComm_t comm = nullptr;
  const ncclResult_t result =
      ncclCommInitRank(&comm, context.nranks, context.ids.at(0), context.rank);
  if (!succeeded(result, "ncclCommInitRank")) throw std::runtime_error("no communicator");
  fn(comm);
  WEFT_OK(ncclCommDestroy(comm));
}

void with_communicator_by_address(const ProcessContext& context,
                                  const std::function<void(ncclComm_t)>& fn) {
  ProcessContext meets = context;
  meets.ids.assign(1, {});
  WEFT_OK(ncclGetUniqueId(&meets.ids[0]));
  with_communicator(meets, fn);
}

}  // namespace weft::test
