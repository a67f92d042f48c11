// See registration.h.
#include "plugins/net_verbs/registration.h"

#include <sys/stat.h>

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

// Registers by address. nullptr: errno says why not.
ibv_mr* register_address(ibv_pd* pd, void* data, size_t size, int relaxed) {
  return verbs().reg_mr_iova2 != nullptr
             ? verbs().reg_mr_iova2(pd, data, size, reinterpret_cast<uint64_t>(data),
                                    access_flags(relaxed))
             : verbs().reg_mr(pd, data, size, kAccess);
}

}  // namespace

// GPU memory may be freed, and other memory have its address, while another connection has it still
// registered. So connections do not share it.
Registration::Registration(std::span<const Port> rails, void* data, size_t size, bool cuda,
                           int relaxed)
    : cuda_(cuda) {
  for (const Port& rail : rails) {
    const auto make = [&] { return register_address(rail.hca->pd(), data, size, relaxed); };
    if (!cuda) {
      add(rail, rail.hca->regions().get({reinterpret_cast<uint64_t>(data), size}, make), size);
      continue;
    }
    ibv_mr* memory = make();
    add(rail, memory == nullptr ? nullptr : std::shared_ptr<ibv_mr>(memory, deregister_region),
        size);
  }
}

// The descriptor's inode is the memory's identity: a registration keeps both.
Registration::Registration(std::span<const Port> rails, void* data, size_t size, uint64_t offset,
                           int fd, int relaxed)
    : cuda_(true) {
  if (verbs().reg_dmabuf_mr == nullptr)
    fail(ncclInvalidUsage, "libibverbs.so.1 is too old for dmabuf: it lacks ibv_reg_dmabuf_mr");
  const auto address = reinterpret_cast<uint64_t>(data);
  struct stat file {};
  if (fstat(fd, &file) != 0) fail_errno(errno, "{} is no descriptor of GPU memory", fd);
  for (const Port& rail : rails)
    add(rail,
        rail.hca->regions().get({address, size, offset, file.st_dev, file.st_ino},
                                [&] {
                                  return verbs().reg_dmabuf_mr(
                                      rail.hca->pd(), offset, size, address, fd,
                                      static_cast<int>(access_flags(relaxed)));
                                }),
        size);
}

void Registration::add(const Port& rail, std::shared_ptr<ibv_mr> memory, size_t size) {
  if (memory == nullptr)
    fail(ncclSystemError, "{}: {}", describe(rail.address),
         explain_registration(errno, size, cuda_));
  memory_.push_back(std::move(memory));
}

}  // namespace weft::net_verbs
