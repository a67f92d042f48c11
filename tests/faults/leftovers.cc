// See leftovers.h.
#include "tests/faults/leftovers.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace weft::test {
namespace {

// `own`: only files of Weft.
int entries(const char* folder, bool own) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (!own || name.find("weft") != std::string::npos) count++;
  }
  return count;
}

std::string open_files() {
  std::string all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
    all += " " + std::filesystem::read_symlink(entry.path(), ignored).string();
  return all;
}

// Names of threads, but not of those that a process keeps once they are needed: the pool for work
// of hosts, and proxies, which have a descriptor each.
std::vector<std::string> threads(int* proxies) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (name == "weft-proxy") ++*proxies;
    if (name != "weft-worker" && name != "weft-proxy") names.push_back(name);
  }
  return names;
}

}  // namespace

size_t address_space() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

Leftovers::Leftovers() : shared_files_(entries("/dev/shm", true)), open_(open_files()) {
  threads_ = threads(&proxies_);
  descriptors_ = entries("/proc/self/fd", false) - proxies_;
}

constexpr int kMostProxies = 8;  // a process makes four, unless it is told to make more

bool Leftovers::settle_to(const Leftovers& before, int seconds) {
  for (int i = 0; i < 100 * seconds; i++) {
    *this = Leftovers();
    if (descriptors_ <= before.descriptors_ && threads_.size() <= before.threads_.size() &&
        shared_files_ <= before.shared_files_ && proxies_ <= kMostProxies)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::string Leftovers::describe() const {
  std::string names;
  for (const std::string& name : threads_) names += " " + name;
  return std::to_string(descriptors_) + " descriptors, " + std::to_string(threads_.size()) +
         " threads, " + std::to_string(shared_files_) + " shared files (" + open_ + ";" + names +
         " )";
}

}  // namespace weft::test
