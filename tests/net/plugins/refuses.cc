// An external plugin whose init() fails and says why.
#include "src/transport/net_abi/v10.h"

namespace {

ncclResult_t init(weft::net_abi::Logger log, weft::net_abi::ProfilerCallback) {
  log(weft::net_abi::kLogWarn, ~0ul, __FILE__, __LINE__, "no fabric on this %s", "machine");
  return ncclSystemError;
}

}  // namespace

extern "C" __attribute__((visibility("default")))
const weft::net_abi::NetV10 ncclNetPlugin_v10 = {"refuses", init};
