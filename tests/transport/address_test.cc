// Addresses, and the choice of interfaces.
#include "src/transport/address.h"

#include <gtest/gtest.h>

#include "src/base/error.h"

namespace weft::test {
namespace {

TEST(Interfaces, MatchPrefixesExactNamesAndTheirInverse) {
  struct Row {
    const char *list, *name;
    bool matches;
  };
  for (const Row& row : {
           Row{"", "eth0", true},           Row{"eth", "eth0", true},
           Row{"eth", "enp3s0", false},     Row{"eth0", "eth01", true},
           Row{"eth,ib", "ib0", true},      Row{"=eth0", "eth0", true},
           Row{"=eth0", "eth01", false},    Row{"=eth0,ib1", "ib1", true},
           Row{"=eth0,ib1", "ib10", false}, Row{"^eth", "eth0", false},
           Row{"^eth", "ib0", true},        Row{"^docker,lo", "lo", false},
           Row{"^docker,lo", "eth0", true}, Row{"^=eth0", "eth0", false},
           Row{"^=eth0", "eth01", true},    Row{"eth,", "ib0", false},
           Row{",,ib", "ib0", true},        Row{"^", "eth0", true},
           Row{"=", "eth0", false},
       })
    EXPECT_EQ(interface_matches(row.list, row.name), row.matches)
        << row.list << " and " << row.name;
}

TEST(Interfaces, OfContainersAndVirtualMachinesAreVirtual) {
  for (const char* name :
       {"docker0", "veth1a2b", "virbr0", "br-1234", "cni0", "cali123", "flannel.1", "tun0", "tap3"})
    EXPECT_TRUE(is_virtual_interface(name)) << name;
  for (const char* name : {"eth0", "enp3s0f1", "ib0", "bond0", "br0", "lo", "wlan0", ""})
    EXPECT_FALSE(is_virtual_interface(name)) << name;
}

TEST(Addresses, AreParsedAndPrintedAlike) {
  for (const char* text : {"127.0.0.1:80", "10.20.30.40:65535", "[::1]:9", "[fe80::1:2]:1234"})
    EXPECT_EQ(describe(parse_address(text)), text);
  EXPECT_EQ(parse_address("localhost:5").port, 5);
}

TEST(Addresses, SurviveTheWayThroughSockaddr) {
  for (const char* text : {"127.0.0.1:80", "[2001:db8::7]:443"}) {
    const Address address = parse_address(text);
    sockaddr_storage storage;
    address.to_sockaddr(storage);
    EXPECT_EQ(Address::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage)), address) << text;
  }
}

TEST(Addresses, ThatAreNoneAreRefusedByName) {
  for (const char* text :
       {"", "localhost", "localhost:", "127.0.0.1:port", "no.such.host.invalid:1"}) {
    try {
      parse_address(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ncclInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(std::string("'") + text + "'"), std::string::npos)
          << error.what();
    }
  }
}

TEST(LocalAddresses, FollowTheInterfacesNamed) {
  Config config;
  config.socket_ifname = "=lo";
  config.socket_family = "AF_INET";
  EXPECT_EQ(local_addresses(config, 99), (std::vector<Address>{Address::loopback(99)}));
  for (const Address& address : local_addresses({}, 99)) EXPECT_EQ(address.port, 99);
}

TEST(LocalAddresses, OfAnInterfaceThatIsNotThereAreAnErrorThatNamesIt) {
  for (const char* name : {"=none-such", "none-such", "=lo0,none"}) {
    Config config;
    config.socket_ifname = name;
    try {
      local_addresses(config, 99);
      ADD_FAILURE() << "accepted " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ncclInvalidUsage);
      EXPECT_NE(std::string(error.what()).find("NCCL_SOCKET_IFNAME=" + std::string(name)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(HostIdentity, IsTheHostsUnlessNcclHostidSaysOtherwise) {
  Config config;
  EXPECT_EQ(host_identity(config), host_identity(Config{}));
  config.host_id = "a";
  const uint64_t a = host_identity(config);
  config.host_id = "b";
  EXPECT_NE(host_identity(config), a);
  EXPECT_NE(a, host_identity(Config{}));
}

}  // namespace
}  // namespace weft::test
