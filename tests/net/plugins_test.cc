// Network plugins are found and chosen by NCCL's rules.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "plugins/net_socket/plugin.h"
#include "src/base/error.h"
#include "src/transport/net_plugins.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

std::string plugin(const std::string& name) {
  return WEFT_TEST_PLUGINS "/libnccl-net-" + name + ".so";
}

NetTable built_in() { return built_in_table(net_socket::kNetV12, net_socket::kExtension); }

NetRequest request_for(const std::string& plugins, const std::string& net_name = "") {
  NetRequest request;
  request.plugins = plugins;
  request.plugins_given = true;
  request.net_name = net_name;
  request.verbs = false;
  return request;
}

std::string refusal(const NetRequest& request) {
  try {
    return "chose " + choose_network(request, built_in())->name();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    return error.what();
  }
}

TEST(PluginFiles, AreTheNameItselfAndThenTheNameInNcclsPattern) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(plugin_files("ofi", ""), (Names{"ofi", "libnccl-net-ofi.so"}));
  EXPECT_EQ(plugin_files("libother.so", ""), (Names{"libother.so"}));
  EXPECT_EQ(plugin_files("/opt/x/net.so", "/lib/"), (Names{"/opt/x/net.so"}));
  EXPECT_EQ(plugin_files("STATIC_PLUGIN", "/lib/"), (Names{""}));
  EXPECT_EQ(plugin_files("ofi", "/lib/"),
            (Names{"ofi", "libnccl-net-ofi.so", "/lib/libnccl-net-ofi.so",
                   "/lib/plugins/libnccl-net-ofi.so"}));
}

TEST(ChosenNetwork, IsTheFirstPluginThatWorks) {
  const auto network = choose_network(request_for("not-there," + plugin("refuses") + "," +
                                                  plugin("tiny8") + "," + plugin("tiny11")),
                                      built_in());
  EXPECT_EQ(network->name(), "tiny8");
  EXPECT_EQ(network->version(), 8);
}

TEST(ChosenNetwork, BearsTheNameThatWasAskedFor) {
  const std::string both = plugin("tiny8") + "," + plugin("tiny11");
  EXPECT_EQ(choose_network(request_for(both, "TINY11"), built_in())->name(), "tiny11");
  EXPECT_EQ(choose_network(request_for(both, "Socket"), built_in())->name(), "weft-socket");
  EXPECT_EQ(choose_network(request_for(both, "weft-socket"), built_in())->name(), "weft-socket");
}

TEST(ChosenNetwork, IsTheBuiltInOneWithoutPlugins) {
  EXPECT_EQ(choose_network(request_for(""), built_in())->name(), "weft-socket");
}

TEST(ChosenNetwork, IsNoneWithTheReasonsOfAll) {
  const std::string text = refusal(request_for("not-there," + plugin("refuses"), "refuses"));
  EXPECT_NE(text.find("not-there"), std::string::npos) << text;
  EXPECT_NE(text.find("no fabric on this machine"), std::string::npos) << text;
  EXPECT_NE(text.find("weft-socket, not refuses"), std::string::npos) << text;
}

TEST(ChosenNetwork, ComesFromTheEnvironment) {
  Config config;
  EXPECT_FALSE(net_request(config, nullptr).plugins_given);
  config.net_plugin = "None";
  EXPECT_TRUE(net_request(config, nullptr).plugins_given);
  EXPECT_EQ(net_request(config, nullptr).plugins, "");
  EXPECT_EQ(net_request(config, "fromconfig").net_name, "fromconfig");
  config.net = "fromenv";
  EXPECT_EQ(net_request(config, "fromconfig").net_name, "fromenv");
}

// Loads our plugin as others would. Every version of its tables moves data.
class SharedObject : public testing::TestWithParam<int> {};

TEST_P(SharedObject, OfTheSocketPluginWorksInEveryVersion) {
  const std::shared_ptr<void> library(dlopen(WEFT_SOCKET_PLUGIN, RTLD_NOW | RTLD_LOCAL),
                                      [](void*) {});
  ASSERT_NE(library, nullptr) << dlerror();
  const NetTable table = find_table(library, GetParam());
  ASSERT_EQ(table.version, GetParam());
  EXPECT_EQ(table.name, "weft-socket");
  const auto network = table.open(7, net_abi::kUndefined);
  ASSERT_GT(network->devices(), 0);
  const NetProperties properties = network->properties(0);
  EXPECT_GT(properties.speed_mbps, 0);
  EXPECT_EQ(properties.pointers, net_abi::kHostPointer);
  auto [sender, receiver] = connect_pair(network);
  std::vector<int> sent(100000), received(120000);
  for (size_t i = 0; i < sent.size(); i++) sent[i] = static_cast<int>(i * 7);
  EXPECT_EQ(transfer(sender, receiver, sent.data(), sent.size() * sizeof(int), received.data(),
                     received.size() * sizeof(int)),
            sent.size() * sizeof(int));
  received.resize(sent.size());
  EXPECT_EQ(sent, received);
}

INSTANTIATE_TEST_SUITE_P(Versions, SharedObject, testing::Values(8, 9, 10, 11, 12),
                         [](const auto& tested) { return "v" + std::to_string(tested.param); });

}  // namespace
}  // namespace weft::test
