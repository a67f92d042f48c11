// See gpu_memory.h.
#include "tests/net/plugins/gpu_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/net/plugins/tiny_net.h"

namespace weft::test::tiny::gpu {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20, kBuffers = 12;

// The CUDA runtime of the program, if it has one.
template <typename... Arguments>
int call_cuda(const char* name, Arguments... arguments) {
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? -1 : function(arguments...);
}

// A program may be capturing a graph, which must not forbid the calls of this thread.
class OutsideCapture {
 public:
  OutsideCapture() { call_cuda("cudaThreadExchangeStreamCaptureMode", &mode_); }
  ~OutsideCapture() { call_cuda("cudaThreadExchangeStreamCaptureMode", &mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  int mode_ = 2;  // relaxed
};

// Copies one after the other, on one stream for all comms of the process: hardware queues are few,
// and a copy must not be behind a kernel that waits for it. The highest priority has its own.
class Copies {
 public:
  static Copies& instance() {
    static Copies copies;
    return copies;
  }
  Copies() {
    constexpr unsigned kNonBlocking = 1;
    int lowest = 0, highest = 0;
    call_cuda("cudaDeviceGetStreamPriorityRange", &lowest, &highest);
    if (call_cuda("cudaStreamCreateWithPriority", &stream_, kNonBlocking, highest) != 0)
      stream_ = nullptr;
  }
  bool has_gpu() const { return stream_ != nullptr; }
  void begin(void* to, const void* from, size_t bytes) {
    const OutsideCapture outside;
    constexpr int kByAddress = 4;
    if (has_gpu())
      call_cuda("cudaMemcpyAsync", to, from, bytes, kByAddress, stream_);
    else
      std::memcpy(to, from, bytes);
  }
  // What the copies so far have to end; nullptr: they have ended.
  void* mark() {
    constexpr unsigned kNoTiming = 2;
    const OutsideCapture outside;
    void* event = nullptr;
    if (!has_gpu() || call_cuda("cudaEventCreateWithFlags", &event, kNoTiming) != 0) return nullptr;
    call_cuda("cudaEventRecord", event, stream_);
    return event;
  }
  static bool is_done(void*& mark) {
    if (mark == nullptr) return true;
    const OutsideCapture outside;
    if (call_cuda("cudaEventQuery", mark) != 0) return false;
    call_cuda("cudaEventDestroy", mark);
    mark = nullptr;
    return true;
  }

 private:
  void* stream_ = nullptr;
};

struct Buffer {
  std::byte* memory = nullptr;
  bool used = false;
};

// Data that has come and is not yet in the GPU's memory.
struct Withheld {
  void* to = nullptr;
  size_t bytes = 0;
  Buffer* buffer = nullptr;
};

struct Request {
  enum Kind { kSend, kReceive, kFlush } kind = kSend;
  void* comm = nullptr;
  void* inner = nullptr;  // of the tiny network; nullptr: a send that waits for its turn
  void* mark = nullptr;   // of the copy before it
  Buffer* buffer = nullptr;
  void* data = nullptr;
  size_t size = 0;
  void* registration = nullptr;  // of the tiny network
  std::vector<Buffer*> flushed;
  int looks = 0;  // at a flush
};

// What a comm with GPU memory needs besides the tiny network's. It is kept for the next comm: to
// unpin memory waits for kernels, and a kernel may wait for this thread.
struct Staging {
  std::vector<std::byte> memory = std::vector<std::byte>(kBufferBytes * kBuffers);
  void* registration = nullptr;
  Copies& copies = Copies::instance();
  std::vector<Buffer> buffers = std::vector<Buffer>(kBuffers);
  std::deque<Withheld> withheld;
  std::deque<Request*> sends;  // that wait; messages keep their order
  void* left = nullptr;        // of the last comm's copies

  explicit Staging(void* comm) {
    // Copies to memory that is not pinned would wait.
    call_cuda("cudaHostRegister", static_cast<void*>(memory.data()), memory.size(), 0u);
    for (size_t i = 0; i < kBuffers; i++) buffers[i].memory = memory.data() + i * kBufferBytes;
    tiny::reg(comm, memory.data(), memory.size(), net_abi::kHostPointer, &registration);
  }
  // The comm closes. Copies may still read and write the memory.
  void leave() {
    for (Buffer& buffer : buffers) buffer.used = false;
    withheld.clear();
    sends.clear();
    left = copies.mark();
  }

  ncclResult_t send_some() {
    while (!sends.empty() && Copies::is_done(sends.front()->mark)) {
      Request& next = *sends.front();
      const ncclResult_t code =
          tiny::isend(next.comm, next.data, next.size, next.registration, &next.inner);
      if (next.inner == nullptr) return code;
      sends.pop_front();
    }
    return ncclSuccess;
  }
  // Who never flushes loses data: the oldest is forgotten.
  Buffer* take() {
    for (;;) {
      for (Buffer& buffer : buffers) {
        if (buffer.used) continue;
        buffer.used = true;
        return &buffer;
      }
      if (withheld.empty()) return nullptr;
      withheld.front().buffer->used = false;
      withheld.pop_front();
    }
  }
};

struct Registration {
  void* inner = nullptr;
  bool on_gpu = false;
  std::byte *data = nullptr, *view = nullptr;  // of a descriptor's memory
  size_t size = 0;

  // nullptr: not in the registration.
  void* seen(void* at, size_t bytes) const {
    if (view == nullptr) return at;
    const auto offset = static_cast<size_t>(static_cast<std::byte*>(at) - data);
    return offset <= size && bytes <= size - offset ? view + offset : nullptr;
  }
};

std::mutex stagings_mutex;
std::map<void*, Staging*> stagings;  // by comm
std::list<Staging> all_stagings;     // those of no comm, too

std::mutex requests_mutex;
std::map<const void*, std::unique_ptr<Request>> requests;  // that nobody has seen done, by address

Staging* staging_of(void* comm, bool make = false) {
  std::lock_guard lock(stagings_mutex);
  const auto known = stagings.find(comm);
  if (known != stagings.end() || !make) return known == stagings.end() ? nullptr : known->second;
  Staging*& mine = stagings[comm];
  for (Staging& staging : all_stagings) {
    const bool spare = std::none_of(stagings.begin(), stagings.end(),
                                    [&](const auto& used) { return used.second == &staging; });
    if (spare && Copies::is_done(staging.left)) return mine = &staging;
  }
  return mine = &all_stagings.emplace_back(comm);
}

void* handed(Request request) {
  auto made = std::make_unique<Request>(std::move(request));
  void* const name = made.get();
  std::lock_guard lock(requests_mutex);
  requests.emplace(name, std::move(made));
  return name;
}

}  // namespace

ncclResult_t reg(void* comm, void* data, size_t size, int type, void** registration) {
  auto made = std::make_unique<Registration>();
  made->on_gpu = type == net_abi::kCudaPointer;
  if (made->on_gpu) {
    staging_of(comm, true);
  } else if (const ncclResult_t code = tiny::reg(comm, data, size, type, &made->inner);
             code != ncclSuccess) {
    return code;
  }
  *registration = made.release();
  return ncclSuccess;
}

ncclResult_t reg_dma_buf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                         void** registration) {
  struct stat file {};
  if (type != net_abi::kCudaPointer || fstat(fd, &file) != 0 ||
      static_cast<uint64_t>(file.st_size) < offset + size)
    return ncclInvalidArgument;
  void* view =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (view == MAP_FAILED) return ncclSystemError;
  staging_of(comm, true);
  *registration =
      std::make_unique<Registration>(Registration{nullptr, true, static_cast<std::byte*>(data),
                                                  static_cast<std::byte*>(view), size})
          .release();
  return ncclSuccess;
}

ncclResult_t dereg(void* comm, void* registration) {
  const std::unique_ptr<Registration> owner(static_cast<Registration*>(registration));
  if (owner->view != nullptr) munmap(owner->view, owner->size);
  return owner->on_gpu ? ncclSuccess : tiny::dereg(comm, owner->inner);
}

ncclResult_t isend(void* comm, void* data, size_t size, void* registration, void** request) {
  const auto& from = *static_cast<Registration*>(registration);
  *request = nullptr;
  data = from.seen(data, size);
  if (data == nullptr) return ncclInvalidArgument;
  Staging* staging = staging_of(comm);
  Request made{
      .kind = Request::kSend, .comm = comm, .data = data, .size = size, .registration = from.inner};
  if (staging == nullptr) {
    const ncclResult_t code = tiny::isend(comm, data, size, from.inner, &made.inner);
    if (made.inner != nullptr) *request = handed(std::move(made));
    return code;
  }
  if (from.on_gpu) {
    if (size > kBufferBytes) return ncclInvalidArgument;
    made.buffer = staging->take();
    if (made.buffer == nullptr) return ncclSuccess;
    staging->copies.begin(made.buffer->memory, data, size);
    made.mark = staging->copies.mark();
    made.data = made.buffer->memory;
    made.registration = staging->registration;
  }
  *request = handed(std::move(made));
  staging->sends.push_back(static_cast<Request*>(*request));
  return staging->send_some();
}

ncclResult_t irecv(void* comm, void* data, size_t size, void* registration, void** request) {
  const auto& to = *static_cast<Registration*>(registration);
  *request = nullptr;
  data = to.seen(data, size);
  if (data == nullptr) return ncclInvalidArgument;
  Buffer* buffer = nullptr;
  if (to.on_gpu) {
    if (size > kBufferBytes) return ncclInvalidArgument;
    buffer = staging_of(comm)->take();
    if (buffer == nullptr) return ncclSuccess;
  }
  Request made{.kind = Request::kReceive, .comm = comm, .buffer = buffer, .data = data};
  const ncclResult_t code =
      tiny::irecv(comm, to.on_gpu ? buffer->memory : data, size,
                  to.on_gpu ? staging_of(comm)->registration : to.inner, &made.inner);
  if (made.inner == nullptr && buffer != nullptr) buffer->used = false;
  if (made.inner != nullptr) *request = handed(std::move(made));
  return code;
}

ncclResult_t flush(void* comm, int, void**, int*, void**, void** request) {
  Staging& staging = *staging_of(comm);
  Request made{.kind = Request::kFlush, .comm = comm};
  for (const Withheld& data : staging.withheld) {
    staging.copies.begin(data.to, data.buffer->memory, data.bytes);
    made.flushed.push_back(data.buffer);
  }
  staging.withheld.clear();
  made.mark = staging.copies.mark();
  *request = handed(std::move(made));
  return ncclSuccess;
}

ncclResult_t test(void* request, int* done, int* size) {
  auto& r = *static_cast<Request*>(request);
  *done = 0;
  Staging* staging = staging_of(r.comm);
  if (r.kind == Request::kFlush) {
    // A flush takes a round trip.
    if (r.looks++ < 2 || !Copies::is_done(r.mark)) return ncclSuccess;
  } else {
    ncclResult_t code = staging != nullptr ? staging->send_some() : ncclSuccess;
    if (code == ncclSuccess && r.inner != nullptr) code = tiny::test(r.inner, done, size);
    if (code != ncclSuccess || *done == 0) return code;
  }
  *done = 1;
  if (r.buffer != nullptr && r.kind == Request::kSend) r.buffer->used = false;
  if (r.buffer != nullptr && r.kind == Request::kReceive)
    staging->withheld.push_back({r.data, static_cast<size_t>(*size), r.buffer});
  for (Buffer* buffer : r.flushed) buffer->used = false;
  std::lock_guard lock(requests_mutex);
  requests.erase(request);
  return ncclSuccess;
}

ncclResult_t close_comm(void* comm) {
  {
    std::lock_guard lock(stagings_mutex);
    if (const auto known = stagings.find(comm); known != stagings.end()) {
      known->second->leave();
      stagings.erase(known);
    }
  }
  {
    std::lock_guard lock(requests_mutex);
    std::erase_if(requests, [&](const auto& one) { return one.second->comm == comm; });
  }
  return tiny::close_comm(comm);
}

}  // namespace weft::test::tiny::gpu
