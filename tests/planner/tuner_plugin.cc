// A tuner plugin of one version of NCCL's ABI (TUNER_VERSION). It asks for ring for all_reduce.
#include "src/planner/tuner_abi.h"

namespace {

using namespace weft::tuner;
constexpr int kRing = 1;

[[maybe_unused]] ncclResult_t init(size_t, size_t, Logger, void** context) {
  *context = nullptr;
  return ncclSuccess;
}
[[maybe_unused]] ncclResult_t init_v5(void** context, uint64_t, size_t ranks, size_t nodes, Logger,
                                      NvlDomain* domain, Constants* constants) {
  *context = nullptr;
  constants->values[0] = 1;
  return domain->domains == static_cast<int>(nodes) && ranks > 0 ? ncclSuccess : ncclInternalError;
}
void prefer_ring(int function, float** costs) {
  if (function == kAllReduce) reinterpret_cast<float(*)[3]>(costs)[kRing][2] = 0;
}
[[maybe_unused]] ncclResult_t get_v2(void*, int function, size_t, int, int, int, int* algorithm,
                                     int* protocol, int*) {
  if (function != kAllReduce) return ncclSuccess;
  *algorithm = kRing;
  *protocol = 2;
  return ncclSuccess;
}
[[maybe_unused]] ncclResult_t get_v3(void*, int function, size_t, int, float** costs, int, int,
                                     int*) {
  prefer_ring(function, costs);
  return ncclSuccess;
}
[[maybe_unused]] ncclResult_t get_v4(void*, int function, size_t, int, float** costs, int, int, int,
                                     int*) {
  prefer_ring(function, costs);
  return ncclSuccess;
}
ncclResult_t end(void*) { return ncclSuccess; }

}  // namespace

extern "C" {
#if TUNER_VERSION == 2
[[gnu::visibility("default")]] extern const V2 ncclTunerPlugin_v2 = {"test tuner", init, get_v2,
                                                                     end};
#elif TUNER_VERSION == 3
[[gnu::visibility("default")]] extern const V3 ncclTunerPlugin_v3 = {"test tuner", init, get_v3,
                                                                     end};
#elif TUNER_VERSION == 4
[[gnu::visibility("default")]] extern const V4 ncclTunerPlugin_v4 = {"test tuner", init, get_v4,
                                                                     end};
#elif TUNER_VERSION == 5
[[gnu::visibility("default")]] extern const V5 ncclTunerPlugin_v5 = {"test tuner", init_v5, get_v4,
                                                                     end};
#else
[[gnu::visibility("default")]] extern const V5 ncclTunerPlugin_v6 = {"test tuner", init_v5, get_v4,
                                                                     end};
#endif
}
