// Checks that need more than the command line.
#include "perf/common/feasible.h"

#include <unistd.h>

#include <filesystem>

#include "perf/common/collective.h"
#include "perf/common/errors.h"
#include "perf/common/split.h"

namespace weft::perf {

void check_feasible(const Process& process, const Options& options) {
  const Split split = Split::from_environment();
  const int ranks = process.size() * options.threads * options.ranks_per_thread;
  for (int r = 0; kCollective.refuses && r < ranks; ++r) {
    const char* reason = kCollective.refuses(split.group_size(r, ranks));
    if (reason != nullptr) throw UsageError(reason);
  }
  if (kCollective.rooted && options.root >= split.smallest_group(ranks)) {
    throw UsageError("-r (--root) " + std::to_string(options.root) +
                     " is not a rank of every group");
  }
  const std::filesystem::path folder = std::filesystem::path(options.json_file).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  if (!options.json_file.empty() && access(where.c_str(), W_OK) != 0) {
    throw UsageError("-J (--output_file): cannot write in " + where);
  }
}

}  // namespace weft::perf
