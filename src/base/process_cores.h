// The cores that threads of this process may use.
#pragma once

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace weft {

// The union over all threads. The calling thread may be bound to one core, which its rank needs for
// itself.
inline cpu_set_t cores_of_process() {
  cpu_set_t all;
  CPU_ZERO(&all);
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    cpu_set_t some;
    const std::string number = task.path().filename().string();
    if (sched_getaffinity(std::atoi(number.c_str()), sizeof some, &some) == 0)
      CPU_OR(&all, &all, &some);
  }
  return all;
}

}  // namespace weft
