// See registration.h.
#include "plugins/net_verbs/registration.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

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

Registration::Registration(std::span<const Port> rails, void* data, size_t size, bool cuda,
                           int relaxed)
    : rails_(rails),
      data_(data),
      size_(size),
      relaxed_(relaxed),
      cuda_(cuda),
      described_(false),
      memory_(rails.size()) {
  register_rails();
}

Registration::Registration(std::span<const Port> rails, void* data, size_t size, uint64_t offset,
                           int fd, int relaxed)
    : rails_(rails),
      data_(data),
      size_(size),
      offset_(offset),
      given_(fd),
      relaxed_(relaxed),
      cuda_(true),
      described_(true),
      memory_(rails.size()) {
  if (verbs().reg_dmabuf_mr == nullptr)
    fail(ncclInvalidUsage, "libibverbs.so.1 is too old for dmabuf: it lacks ibv_reg_dmabuf_mr");
  register_rails();
}

void Registration::register_rails() {
  for (uint32_t rail = 0; rail < rails_.size(); rail++)
    if (rails_[rail].address.spare == 0) on(rail);
  given_ = -1;
}

const ibv_mr& Registration::on(uint32_t rail) const {
  std::shared_ptr<const Region>& region = memory_[rail];
  if (region == nullptr) {
    region = described_ ? by_descriptor(rails_[rail]) : by_address(rails_[rail]);
    if (region == nullptr)
      fail(ncclSystemError, "{}: {}", describe(rails_[rail].address),
           explain_registration(errno, size_, cuda_));
  }
  return *region->memory;
}

// GPU memory may be freed, and other memory have its address, while another connection has it still
// registered. So connections do not share it.
std::shared_ptr<const Region> Registration::by_address(const Port& rail) const {
  const auto make = [&] {
    return Region{register_address(rail.hca->pd(), data_, size_, relaxed_), {}};
  };
  if (!cuda_) return rail.hca->regions().get({reinterpret_cast<uint64_t>(data_), size_}, make);
  Region made = make();
  if (made.memory == nullptr) return nullptr;
  return {std::make_unique<Region>(std::move(made)).release(), [](const Region* last) {
            const std::unique_ptr<const Region> owner(last);
            deregister_region(last->memory);
          }};
}

// The descriptor's inode is the memory's identity: a registration keeps both.
std::shared_ptr<const Region> Registration::by_descriptor(const Port& rail) const {
  const int fd = given_ >= 0 ? given_ : memory_[0]->descriptor.get();
  struct stat file {};
  if (fstat(fd, &file) != 0) fail_errno(errno, "{} is no descriptor of GPU memory", fd);
  const auto address = reinterpret_cast<uint64_t>(data_);
  const bool keeps = rails_.back().address.spare != 0;
  return rail.hca->regions().get({address, size_, offset_, file.st_dev, file.st_ino, keeps}, [&] {
    Region made{verbs().reg_dmabuf_mr(rail.hca->pd(), offset_, size_, address, fd,
                                      static_cast<int>(access_flags(relaxed_))),
                {}};
    if (made.memory != nullptr && keeps) made.descriptor = Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return made;
  });
}

}  // namespace weft::net_verbs
