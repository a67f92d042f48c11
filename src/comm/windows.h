// Windows: memory that all ranks of a communicator register together. Ranks of one host reach each
// other's windows. On GPUs the memory of a host's ranks is mapped into one range of addresses.
// Ranks of other hosts write through connections that are made with the first window.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/communicator_options.h"
#include "src/comm/control_channel.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/mesh.h"
#include "src/comm/window_offer.h"
#include "src/exec/cuda/device_windows.h"
#include "src/exec/remote_memory.h"

namespace weft {

class RemoteWrites;

// Parts of the communicator that windows use. All must outlive them.
struct WindowParts {
  const CommunicatorOptions& options;
  const Config& config;
  host::RankContext& context;
  ControlChannel& control;
  Mesh& mesh;
  const NicPlan& nics;
  GpuLauncher* gpu;  // nullptr in host mode
  // The memory of this rank, for writes from other hosts.
  std::function<std::unique_ptr<RemoteMemory>()> remote_memory;
  // Called when writes from another host cannot go on. Any thread.
  std::function<void(ncclResult_t code, const std::string& text)> give_up;
};

// Collective functions: one thread at a time. at() and find(): any thread.
class Windows {
 public:
  explicit Windows(const WindowParts& parts);
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Collective. Returns the handle that kernels and users know it by. The window keeps `owner`.
  // What fails on one rank fails on all.
  void* add(void* base, size_t size, std::shared_ptr<void> owner = nullptr);
  // Local. False: there is no such window.
  bool remove(void* handle);

  struct View {
    uint64_t number = 0;  // the same on all ranks
    std::byte* base = nullptr;
    size_t size = 0;
  };
  // Throws Error if there is no such window.
  View find(const void* handle);
  // The size of a rank's part. Ranks may register different sizes.
  size_t size_at(const void* handle, int peer);
  // Where this process reaches a rank's part of the window. nullptr, with the reason in `why`, if
  // it cannot.
  std::byte* at(const void* handle, int peer, std::string& why);
  // The window with this number. An empty one if there is none.
  View numbered(uint64_t number);

  // The LSA team: consecutive ranks whose kernels reach each other's memory. As many on all ranks.
  int lsa_size() const { return lsa_size_; }
  int lsa_rank() const { return parts_.options.rank % lsa_size_; }
  // GPUs only: for device communicators.
  const cuda::DeviceWindow& device_window(const void* handle);
  cuda::DeviceWindowTable* table();

  // Writes to other hosts; nullptr: there are no other hosts, or no window has been registered yet.
  RemoteWrites* remote() const { return remote_.get(); }
  const WindowParts& parts() const { return parts_; }
  // Whether this rank reaches all others' windows in some way.
  bool complete() const;
  // Whether kernels of an LSA team can communicate by themselves.
  bool has_device_api() const;

  // Collective: all ranks have come here.
  void meet(const char* what);
  // Collective: runs `work`. Throws on all ranks if it throws on one.
  void together(const char* what, const std::function<void()>& work);

  // For a suspension: the windows, without what ranks share. They keep their handles.
  std::shared_ptr<void> take();
  // Collective: what take() gave becomes windows of this communicator, which has none. Windows that
  // some rank has removed are out of reach.
  void restore(const std::shared_ptr<void>& taken);

 private:
  struct Window {
    View view;
    std::vector<WindowOffer> offers;         // of all ranks
    std::unique_ptr<cuda::FlatWindow> flat;  // GPUs
    std::string why;                         // there is none
    cuda::DeviceWindow device;               // in host mode only the address matters
    std::shared_ptr<void> owner;             // of the memory, if it is not the user's
    // Host mode: parts of ranks of other processes, as far as they were asked for.
    std::map<int, std::shared_ptr<const Mapping>> mapped;
  };
  struct Kept {
    uint64_t next = 1;
    std::map<const void*, std::unique_ptr<Window>> windows;
    std::unique_ptr<cuda::DeviceWindows> device;
  };
  int compute_lsa_size() const;
  void connect_hosts();
  std::vector<std::string> gather(const std::string& text);
  void map(Window& window);
  void share(Window& window);
  // With the lock.
  Window& get(const void* handle);
  bool is_member(int peer) const;
  size_t member_number(int peer) const;

  const WindowParts parts_;
  const int lsa_size_;
  std::vector<int> members_;  // ranks of this host whose GPUs reach each other, ascending
  std::mutex mutex_;
  uint64_t next_ = 1;
  std::map<const void*, std::unique_ptr<Window>> windows_;  // by handle
  std::unique_ptr<cuda::DeviceWindows> device_;             // GPUs, from the first window on
  std::unique_ptr<RemoteWrites> remote_;
};

}  // namespace weft
