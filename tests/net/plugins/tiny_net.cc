// See tiny_net.h.
#include "tests/net/plugins/tiny_net.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>

namespace weft::test::tiny {
namespace {

struct Handle {
  uint32_t length = 0, calls = 0;
  sockaddr_un address{};
};
static_assert(sizeof(Handle) <= net_abi::kHandleBytes);

// Like a NIC it sends from the pages that it pinned, wherever the address leads by now. Like NCCL's
// plugin for RDMA it pins memory once for all connections, by address and size.
struct Registration {
  char* data = nullptr;
  size_t size = 0;
  char* pages = nullptr;  // a second view of them
  int users = 0;
};

std::mutex cache_mutex;  // protects the cache
std::list<Registration> cache;

Registration* pin(char* data, size_t size) {
  const std::lock_guard lock(cache_mutex);
  auto it = std::find_if(cache.begin(), cache.end(), [&](const Registration& known) {
    return known.data == data && known.size == size;
  });
  if (it == cache.end()) {
    // Only shared mappings can be seen twice. Private ones are rings, which outlive their comms.
    void* pages = mremap(data, 0, size, MREMAP_MAYMOVE);
    cache.push_back({data, size, pages == MAP_FAILED ? data : static_cast<char*>(pages), 0});
    it = std::prev(cache.end());
  }
  it->users++;
  return &*it;
}

void unpin(Registration* registration) {
  const std::lock_guard lock(cache_mutex);
  if (--registration->users > 0) return;
  if (registration->pages != registration->data) munmap(registration->pages, registration->size);
  cache.remove_if([&](const Registration& each) { return &each == registration; });
}

struct Comm;
struct Request {
  Comm* comm = nullptr;
  bool sends = false, done = false;
  char* data = nullptr;
  uint64_t size = 0, room = 0;  // a receive knows its size when the length has arrived
  size_t moved = 0;             // includes the 8 bytes of length
};

struct Comm {
  int fd = -1;
  int asked = 0;
  std::deque<Request*> queue;  // in order; all send or all receive
};

constexpr size_t kMostInFlight = 3;

std::atomic<size_t> registered{0};  // bytes

// 1: progress, 0: not now, -1: broken.
int step(Request& r) {
  const bool length = r.moved < sizeof r.size;
  char* at =
      length ? reinterpret_cast<char*>(&r.size) + r.moved : r.data + (r.moved - sizeof r.size);
  const size_t left = length ? sizeof r.size - r.moved : r.size + sizeof r.size - r.moved;
  const ssize_t moved = r.sends ? send(r.comm->fd, at, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(r.comm->fd, at, left, MSG_DONTWAIT);
  if (moved < 0 && errno == EAGAIN) return 0;
  if (moved <= 0) return -1;
  r.moved += static_cast<size_t>(moved);
  if (!r.sends && r.moved == sizeof r.size && r.size > r.room) return -1;
  return 1;
}

bool progress(Comm& comm) {
  while (!comm.queue.empty()) {
    Request& front = *comm.queue.front();
    while (front.moved < sizeof front.size || front.moved < sizeof front.size + front.size) {
      const int moved = step(front);
      if (moved < 0) return false;
      if (moved == 0) return true;
    }
    front.done = true;
    comm.queue.pop_front();
  }
  return true;
}

ncclResult_t start(void* comm, bool sends, void* data, size_t size, void* registration,
                   void** request) {
  auto& c = *static_cast<Comm*>(comm);
  const auto* mr = static_cast<Registration*>(registration);
  *request = nullptr;
  if (mr == nullptr || static_cast<char*>(data) < mr->data ||
      static_cast<char*>(data) + size > mr->data + mr->size)
    return ncclInvalidArgument;
  if (++c.asked % 3 == 0 || c.queue.size() >= kMostInFlight) return ncclSuccess;
  auto r = std::make_unique<Request>();
  r->comm = &c;
  r->sends = sends;
  r->data = mr->pages + (static_cast<char*>(data) - mr->data);
  r->size = sends ? size : 0;
  r->room = size;
  c.queue.push_back(r.get());
  *request = r.release();
  return ncclSuccess;
}

}  // namespace

// For tests that load the plugin, too.
extern "C" __attribute__((visibility("default"))) size_t weft_tiny_registered() {
  return registered;
}

ncclResult_t listen(void* handle, void** listener) {
  auto comm = std::make_unique<Comm>();
  comm->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  Handle h;
  h.address.sun_family = AF_UNIX;
  socklen_t length = sizeof(sa_family_t);  // the kernel chooses a name
  if (bind(comm->fd, reinterpret_cast<sockaddr*>(&h.address), length) != 0 ||
      ::listen(comm->fd, 16) != 0)
    return ncclSystemError;
  length = sizeof h.address;
  getsockname(comm->fd, reinterpret_cast<sockaddr*>(&h.address), &length);
  h.length = length;
  // A name that the kernel chooses is short, so the used part of the address fits into the handle.
  std::memcpy(handle, &h, net_abi::kHandleBytes < sizeof h ? net_abi::kHandleBytes : sizeof h);
  *listener = comm.release();
  return ncclSuccess;
}

ncclResult_t connect(void* handle, void** comm) {
  auto& h = *static_cast<Handle*>(handle);
  *comm = nullptr;
  if (++h.calls < 3) return ncclSuccess;
  auto c = std::make_unique<Comm>();
  c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (::connect(c->fd, reinterpret_cast<sockaddr*>(&h.address), h.length) != 0) {
    close(c->fd);
    return errno == EAGAIN ? ncclSuccess : ncclSystemError;
  }
  *comm = c.release();
  return ncclSuccess;
}

ncclResult_t accept(void* listener, void** comm) {
  *comm = nullptr;
  const int fd =
      accept4(static_cast<Comm*>(listener)->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return errno == EAGAIN ? ncclSuccess : ncclSystemError;
  auto c = std::make_unique<Comm>();
  c->fd = fd;
  *comm = c.release();
  return ncclSuccess;
}

ncclResult_t close_comm(void* comm) {
  const std::unique_ptr<Comm> owner(static_cast<Comm*>(comm));
  for (Request* request : owner->queue) const std::unique_ptr<Request> forgotten(request);
  close(owner->fd);
  return ncclSuccess;
}

ncclResult_t close_listener(void* listener) { return close_comm(listener); }

ncclResult_t reg(void*, void* data, size_t size, int type, void** registration) {
  if (type != net_abi::kHostPointer) return ncclInvalidArgument;
  const char* limit = std::getenv("WEFT_TEST_TINY_LIMIT");  // MiB of one registration
  if (limit != nullptr && *limit != 0 && size > std::strtoull(limit, nullptr, 10) << 20)
    return ncclSystemError;
  registered += size;
  *registration = pin(static_cast<char*>(data), size);
  return ncclSuccess;
}

ncclResult_t dereg(void*, void* registration) {
  auto* pinned = static_cast<Registration*>(registration);
  registered -= pinned->size;
  unpin(pinned);
  return ncclSuccess;
}

ncclResult_t isend(void* comm, void* data, size_t size, void* registration, void** request) {
  return start(comm, true, data, size, registration, request);
}

ncclResult_t irecv(void* comm, void* data, size_t size, void* registration, void** request) {
  return start(comm, false, data, size, registration, request);
}

ncclResult_t test(void* request, int* done, int* size) {
  auto* r = static_cast<Request*>(request);
  *done = 0;
  if (!r->done && !progress(*r->comm) && !r->done) return ncclRemoteError;
  if (!r->done) return ncclSuccess;
  const std::unique_ptr<Request> finished(r);
  *done = 1;
  if (size != nullptr) *size = static_cast<int>(r->size);
  return ncclSuccess;
}

}  // namespace weft::test::tiny
