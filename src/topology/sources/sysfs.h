// Small files of /sys and /proc. `root` is a prefix of every path, so that tests can supply a
// machine. Nothing throws: a file that cannot be read is empty.
#pragma once

#include <string>
#include <vector>

namespace weft {

class Sysfs {
 public:
  explicit Sysfs(std::string root = "") : root_(std::move(root)) {}

  // The first line, without trailing blanks.
  std::string line(const std::string& path) const;
  // The number at the start of the first line, or `otherwise`.
  double number(const std::string& path, double otherwise) const;
  // The whole file, up to a megabyte.
  std::string text(const std::string& path) const;
  std::vector<std::string> list(const std::string& folder) const;  // sorted names
  bool exists(const std::string& path) const;
  // The target of a symbolic link, without the root; empty if there is none.
  std::string real(const std::string& path) const;

 private:
  std::string root_;
};

}  // namespace weft
