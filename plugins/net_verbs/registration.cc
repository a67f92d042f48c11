// See registration.h.
#include "plugins/net_verbs/registration.h"

#include <cerrno>

#include "plugins/net_verbs/error_text.h"
#include "src/base/error.h"

namespace weft::net_verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// The NIC may reorder writes, because only the completion announces a message.
unsigned access_flags(int relaxed) {
  const bool on = relaxed == 1 || (relaxed == 2 && verbs().reg_mr_iova2 != nullptr);
  return kAccess | (on ? static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING) : 0u);
}

}  // namespace

Registration::Registration(std::span<const Port> rails, void* data, size_t size, bool cuda,
                           int relaxed)
    : cuda_(cuda) {
  for (const Port& rail : rails) {
    ibv_pd* pd = rail.hca->pd();
    const auto address = reinterpret_cast<uint64_t>(data);
    add(rail,
        verbs().reg_mr_iova2 != nullptr
            ? verbs().reg_mr_iova2(pd, data, size, address, access_flags(relaxed))
            : verbs().reg_mr(pd, data, size, kAccess),
        size);
  }
}

Registration::Registration(std::span<const Port> rails, void* data, size_t size, uint64_t offset,
                           int fd, int relaxed)
    : cuda_(true) {
  if (verbs().reg_dmabuf_mr == nullptr)
    fail(ncclInvalidUsage, "libibverbs.so.1 is too old for dmabuf: it lacks ibv_reg_dmabuf_mr");
  for (const Port& rail : rails)
    add(rail,
        verbs().reg_dmabuf_mr(rail.hca->pd(), offset, size, reinterpret_cast<uint64_t>(data), fd,
                              static_cast<int>(access_flags(relaxed))),
        size);
}

void Registration::add(const Port& rail, ibv_mr* memory, size_t size) {
  if (memory == nullptr)
    fail(ncclSystemError, "{}: {}", describe(rail.address),
         explain_registration(errno, size, cuda_));
  memory_.emplace_back(memory);
}

}  // namespace weft::net_verbs
