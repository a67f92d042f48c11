// Which programs need no interpreter, and what is left of them.
#include "src/exec/exchange_shape.h"

#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "src/schedule/lower.h"
#include "src/schedule/verify.h"

namespace weft {
namespace {

Program program_of(const Generator& generator, const Collective& collective, int rank) {
  return lower(verify(generator.make(collective, false), false), rank);
}

uint32_t everyone_but(int rank, int n) { return ((uint32_t{1} << n) - 1) & ~(uint32_t{1} << rank); }

TEST(ExchangeShape, OfACollectiveInWhichAllSendToAll) {
  for (const int n : {2, 3, 8}) {
    for (int rank = 0; rank < n; rank++) {
      const auto gather =
          exchange_shape(program_of(kExchange, {CollectiveKind::kAllGather, n, 0}, rank));
      ASSERT_TRUE(gather.has_value()) << n;
      EXPECT_EQ(gather->send_to, everyone_but(rank, n));
      EXPECT_EQ(gather->receive_from, everyone_but(rank, n));
      EXPECT_EQ(gather->send_step, 0);
      for (int peer = 0; peer < n; peer++)
        if (peer != rank) {
          EXPECT_EQ(gather->receive_base + peer * gather->receive_step, peer);
        }
      EXPECT_TRUE(gather->copies_own);
      EXPECT_EQ(gather->own_to, rank);
      EXPECT_FALSE(gather->reduces);

      const auto scatter =
          exchange_shape(program_of(kExchange, {CollectiveKind::kReduceScatter, n, 0}, rank));
      ASSERT_TRUE(scatter.has_value()) << n;
      EXPECT_TRUE(scatter->reduces && scatter->sums_own && !scatter->copies_own);
      EXPECT_EQ(scatter->own_from, rank);
      for (int peer = 0; peer < n; peer++)
        if (peer != rank) {
          EXPECT_EQ(scatter->send_base + peer * scatter->send_step, peer);
        }

      const auto sum =
          exchange_shape(program_of(kOneShot, {CollectiveKind::kAllReduce, n, 0}, rank));
      ASSERT_TRUE(sum.has_value()) << n;
      EXPECT_EQ(sum->receive_from, everyone_but(rank, n));
      EXPECT_TRUE(sum->reduces && sum->sums_own);
    }
  }
}

TEST(ExchangeShape, OfACollectiveWithARoot) {
  const int n = 5, root = 3;
  for (int rank = 0; rank < n; rank++) {
    const auto broadcast =
        exchange_shape(program_of(kExchange, {CollectiveKind::kBroadcast, n, root}, rank));
    ASSERT_TRUE(broadcast.has_value());
    EXPECT_EQ(broadcast->send_to, rank == root ? everyone_but(root, n) : 0u);
    EXPECT_EQ(broadcast->receive_from, rank == root ? 0u : uint32_t{1} << root);
    const auto reduce =
        exchange_shape(program_of(kExchange, {CollectiveKind::kReduce, n, root}, rank));
    ASSERT_TRUE(reduce.has_value());
    EXPECT_EQ(reduce->reduces, rank == root);
    EXPECT_EQ(reduce->send_to, rank == root ? 0u : uint32_t{1} << root);
  }
}

TEST(ExchangeShape, IsNotThatOfTwoPhasesOrOfTooManyRanks) {
  EXPECT_FALSE(exchange_shape(program_of(kExchange, {CollectiveKind::kAllReduce, 4, 0}, 1)));
  EXPECT_FALSE(exchange_shape(program_of(kRing, {CollectiveKind::kAllGather, 4, 0}, 1)));
  EXPECT_FALSE(exchange_shape(program_of(kExchange, {CollectiveKind::kAllGather, 40, 0}, 1)));
}

}  // namespace
}  // namespace weft
