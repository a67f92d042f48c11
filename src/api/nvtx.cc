// See nvtx.h. A separate file, because NVTX's header is large.
#include "src/api/nvtx.h"

#ifdef WEFT_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

#include "src/base/config.h"

namespace weft::api {
namespace {

// nullptr: turned off.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = []() -> nvtxDomainHandle_t {
    try {
      if (Config::from_environment().nvtx_disable) return nullptr;
    } catch (...) {
      return nullptr;
    }
    return nvtxDomainCreateA("NCCL");
  }();
  return made;  // NVTX also returns nullptr if there is no tool
}

}  // namespace

NvtxRange::NvtxRange(const char* function) noexcept {
  if (domain() == nullptr) return;
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = function;
  nvtxDomainRangePushEx(domain(), &event);
}

NvtxRange::~NvtxRange() {
  if (domain() != nullptr) nvtxDomainRangePop(domain());
}

}  // namespace weft::api
#endif
