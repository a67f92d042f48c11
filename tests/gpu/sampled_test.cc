// A small sample of everything for compute-sanitizer (sanitizer.sh), where kernels run 100 times
// slower.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"

namespace weft::test {
namespace {

class Sampled : public GpuTest {};

// A few sizes with odd ends, one of them large enough for several thread blocks. Ranks meet before
// they launch and after they have checked. The tools seem to wait for all kernels when a rank
// copies or waits, even for kernels that wait for that rank's next call.
void sample(Rank& me) {
  int turn = 0;
  for (const Operation operation : all_operations())
    for (const size_t count : {size_t{1}, size_t{1003}, size_t{50001}}) {
      Case c = make_case(operation, count, turn % 2 == 0 ? ncclFloat32 : ncclBfloat16);
      c.in_place = turn % 3 == 0 && can_be_in_place(operation);
      c.reduction = all_reductions()[static_cast<size_t>(turn) % all_reductions().size()];
      const size_t offset = turn % 4 == 1 ? type_of(c.type).bytes : 0;
      me.arena->reset();
      const auto run = me.make(c, {offset, offset});
      me.meet();
      WEFT_OK(run->launch(me.stream()));
      expect_right(run->check(me.stream()));
      me.meet();
      ++turn;
    }
}

TEST_F(Sampled, OneRank) { run_team(1, sample); }

TEST_F(Sampled, TwoRanks) { run_team(2, sample); }

TEST_F(Sampled, TwoRanksInAGraph) {
  run_team(2, [](Rank& me) {
    const auto small = me.make(make_case(Operation::kAllReduce, 99));
    const auto large = me.make(make_case(Operation::kReduceScatter, 30001));
    const Graph graph(me.stream(), [&] {
      WEFT_OK(small->launch(me.stream()));
      WEFT_OK(large->launch(me.stream()));
    });
    me.meet();
    for (int i = 0; i < 3; ++i) graph.replay(me.stream());
    WEFT_CUDA(cudaStreamSynchronize(me.stream()));
    me.meet();
    expect_right(small->check(me.stream()));
    expect_right(large->check(me.stream()));
    me.meet();
  });
}

}  // namespace
}  // namespace weft::test
