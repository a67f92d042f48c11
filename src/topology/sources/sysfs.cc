// See sysfs.h.
#include "src/topology/sources/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include "src/base/handles.h"

namespace weft {

std::string Sysfs::text(const std::string& path) const {
  const Fd fd(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  if (!fd) return text;
  char buffer[4096];
  ssize_t got = 0;
  while (text.size() < 1u << 20 && (got = read(fd.get(), buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<size_t>(got));
  return text;
}

std::string Sysfs::line(const std::string& path) const {
  std::string first = text(path);
  first.erase(std::min(first.find('\n'), first.size()));
  first.erase(first.find_last_not_of(" \t\r") + 1);
  return first;
}

double Sysfs::number(const std::string& path, double otherwise) const {
  const std::string word = line(path);
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  return end == word.c_str() ? otherwise : value;
}

std::vector<std::string> Sysfs::list(const std::string& folder) const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir((root_ + folder).c_str()), closedir);
  if (!stream) return names;
  while (const dirent* entry = readdir(stream.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

bool Sysfs::exists(const std::string& path) const {
  return access((root_ + path).c_str(), F_OK) == 0;
}

std::string Sysfs::real(const std::string& path) const {
  char buffer[PATH_MAX];
  if (realpath((root_ + path).c_str(), buffer) == nullptr) return "";
  std::string full = buffer;
  if (root_.empty()) return full;
  char base[PATH_MAX];
  if (realpath(root_.c_str(), base) == nullptr) return full;
  const std::string prefix = base;
  return full.compare(0, prefix.size(), prefix) == 0 ? full.substr(prefix.size()) : full;
}

}  // namespace weft
