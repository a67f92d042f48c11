// make_stream() of rank_stream.h in builds without CUDA.
#include "perf/overlap/rank_stream.h"

namespace weft::perf::overlap {

std::unique_ptr<RankStream> make_stream(int, bool) { return make_host_stream(); }

}  // namespace weft::perf::overlap
