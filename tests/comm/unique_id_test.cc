// The contents of a unique id, and the order in which its addresses are tried.
#include "src/comm/unique_id.h"

#include <gtest/gtest.h>

#include <set>

#include "nccl.h"
#include "src/base/error.h"
#include "src/transport/acceptor.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

TEST(UniqueId, FillsAnNcclUniqueId) {
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
  const ScopedEnvironment environment{{"NCCL_COMM_ID", {}}, {"NCCL_SOCKET_IFNAME", "lo"}};
  const UniqueId id = UniqueId::create();
  EXPECT_EQ(id.magic, UniqueId::kMagic);
  EXPECT_EQ(id.fixed, 0);
  EXPECT_NE(id.secret, Secret{});
  ASSERT_GE(id.address_count, 1);
  for (int a = 0; a < id.address_count; a++)
    EXPECT_EQ(id.addresses[a].port, Acceptor::instance().port());
  EXPECT_EQ(id.addresses[0], Address::loopback(Acceptor::instance().port()));
}

TEST(UniqueId, IsNeverTheSameAgain) {
  const ScopedEnvironment environment{{"NCCL_COMM_ID", {}}};
  std::set<Secret> secrets;
  for (int i = 0; i < 20; i++) secrets.insert(UniqueId::create().secret);
  EXPECT_EQ(secrets.size(), 20u);
}

TEST(UniqueId, SendsRanksOfItsHostToLoopbackFirst) {
  UniqueId id;
  id.host = 5;
  id.address_count = 2;
  id.addresses[0] = parse_address("10.1.2.3:777");
  id.addresses[1] = parse_address("10.9.2.3:777");
  EXPECT_EQ(id.candidates(6), (std::vector<Address>{id.addresses[0], id.addresses[1]}));
  EXPECT_EQ(id.candidates(5),
            (std::vector<Address>{Address::loopback(777), id.addresses[0], id.addresses[1]}));
  id.fixed = 1;  // the user chose the address
  EXPECT_EQ(id.candidates(5), (std::vector<Address>{id.addresses[0], id.addresses[1]}));
}

TEST(UniqueId, ComesFromNcclCommIdAlikeOnAllRanks) {
  const ScopedEnvironment environment{{"NCCL_COMM_ID", "127.0.0.1:4711"}, {"WEFT_SECRET", {}}};
  const UniqueId a = UniqueId::create(), b = UniqueId::create();
  EXPECT_EQ(a.fixed, 1);
  EXPECT_EQ(a.secret, b.secret);
  EXPECT_EQ(a.addresses[0], parse_address("127.0.0.1:4711"));
  const ScopedEnvironment secret{{"WEFT_SECRET", "swordfish"}};
  EXPECT_NE(UniqueId::create().secret, a.secret);
}

TEST(UniqueId, RefusesANonsensicalNcclCommId) {
  const ScopedEnvironment environment{{"NCCL_COMM_ID", "nowhere"}};
  EXPECT_THROW(UniqueId::create(), Error);
}

}  // namespace
}  // namespace weft::test
