// See schedule_paths.h.
#include "src/planner/schedule_paths.h"

#include <algorithm>
#include <filesystem>

namespace weft {
namespace {

namespace fs = std::filesystem;

class Paths {
 public:
  void add(const fs::path& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return add_file(path);
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.path().extension() == ".xml" || entry.path().extension() == ".json")
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) add_file(file);
  }

  void add_list(const std::string& list) {
    size_t begin = 0;
    while (begin <= list.size()) {
      const size_t end = std::min(list.find(':', begin), list.size());
      if (end > begin) add(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  std::vector<SchedulePath> take() { return std::move(paths_); }

 private:
  void add_file(const fs::path& path) {
    std::error_code error;
    SchedulePath file{path.string(), 0, 0};
    const fs::path real = fs::weakly_canonical(path, error);
    if (std::find(real_.begin(), real_.end(), real) != real_.end()) return;
    real_.push_back(real);
    if (const auto time = fs::last_write_time(path, error); !error)
      file.changed = time.time_since_epoch().count();
    if (const auto size = fs::file_size(path, error); !error) file.size = size;
    paths_.push_back(std::move(file));
  }

  std::vector<fs::path> real_;
  std::vector<SchedulePath> paths_;
};

}  // namespace

std::vector<SchedulePath> schedule_paths(const Config& config) {
  Paths paths;
  paths.add_list(config.schedules);
  paths.add_list(config.msccl_xml_files);
  if (!config.msccl_algo_dir.empty()) paths.add(config.msccl_algo_dir);
  return paths.take();
}

}  // namespace weft
