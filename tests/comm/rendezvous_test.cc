// A rendezvous that nobody will join does not stay open.
#include "src/comm/rendezvous.h"

#include <gtest/gtest.h>

#include "src/transport/acceptor.h"
#include "src/transport/socket.h"

namespace weft {
namespace {

bool is_open(const Secret& secret) {
  const Fd fd = connect_unix(Acceptor::instance().unix_name());
  Purpose purpose;
  purpose.kind = Purpose::kRendezvous;
  purpose.from_rank = 0;
  return authenticate(fd.get(), secret, purpose, in_seconds(20)).has_value();
}

TEST(HeldRendezvous, ClosesUnlessItIsHandedOver) {
  for (const bool joined : {false, true}) {
    const Secret secret = random_secret();
    Rendezvous::open(secret);
    {
      HeldRendezvous held(secret);
      EXPECT_TRUE(is_open(secret));
      if (joined) held.hand_over();
    }
    EXPECT_EQ(is_open(secret), joined);
    Rendezvous::close(secret);
  }
}

}  // namespace
}  // namespace weft
