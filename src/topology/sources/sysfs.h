// The small files of /sys and /proc. `root` stands before every path, so that tests can bring a
// machine of their own. Nothing throws: what cannot be read is empty.
#pragma once

#include <string>
#include <vector>

namespace weft {

class Sysfs {
 public:
  explicit Sysfs(std::string root = "") : root_(std::move(root)) {}

  // The first line, without blanks at its end.
  std::string line(const std::string& path) const;
  // A number at the start of that line, or `otherwise`.
  double number(const std::string& path, double otherwise) const;
  // The whole file, up to a megabyte.
  std::string text(const std::string& path) const;
  std::vector<std::string> list(const std::string& folder) const;  // sorted names
  bool exists(const std::string& path) const;
  // Where links lead, with the root taken off again; empty if nowhere.
  std::string real(const std::string& path) const;

 private:
  std::string root_;
};

}  // namespace weft
