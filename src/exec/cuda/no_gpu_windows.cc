// Replaces windows and one-sided calls on GPUs in builds without CUDA.
#include "src/base/error.h"
#include "src/exec/cuda/device_windows.h"
#include "src/exec/cuda/flat_window.h"
#include "src/exec/cuda/one_sided_launcher.h"

namespace weft::cuda {

namespace {
[[noreturn]] void refuse_window() { fail(ncclInternalError, "built without CUDA"); }
}  // namespace

bool can_share_mappings(int) { return false; }
uint64_t LentWindow::bytes() const { return 0; }
LentWindow lend_window(int, const void*, size_t, std::string&) { refuse_window(); }
void take_back(const LentWindow&) {}
FlatWindow::FlatWindow(int device, std::span<const Member>, const Borrow&) : device_(device) {
  refuse_window();
}
FlatWindow::~FlatWindow() = default;
char* FlatWindow::at(size_t) const { return nullptr; }

struct DeviceWindows::State {};
DeviceWindows::DeviceWindows(int) { refuse_window(); }
DeviceWindows::~DeviceWindows() = default;
void* DeviceWindows::add(const DeviceWindow&, const void*, size_t) { refuse_window(); }
void DeviceWindows::update(void*, const DeviceWindow&) {}
void DeviceWindows::remove(void*) {}
DeviceWindowTable* DeviceWindows::table() { return nullptr; }
void* allocate_zeroed(int, size_t) { refuse_window(); }

struct OneSidedLauncher::State {};
OneSidedLauncher::OneSidedLauncher(SignalWords) { refuse_window(); }
OneSidedLauncher::~OneSidedLauncher() = default;
bool OneSidedLauncher::reaches(int) const { return false; }
void OneSidedLauncher::put(cudaStream_t, int, void*, const void*, size_t) {}
void OneSidedLauncher::wait(cudaStream_t, int, uint64_t) {}
void OneSidedLauncher::put_remote(cudaStream_t, int, std::function<void()>) {}
void OneSidedLauncher::flush() {}
void OneSidedLauncher::synchronize() noexcept {}
std::unique_ptr<RemoteMemory> OneSidedLauncher::remote_memory() { refuse_window(); }

}  // namespace weft::cuda
