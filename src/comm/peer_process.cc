// See peer_process.h.
#include "src/comm/peer_process.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

namespace weft {

uint32_t pid_namespace() {
  struct stat file {};
  return stat("/proc/self/ns/pid", &file) == 0 ? static_cast<uint32_t>(file.st_ino) : 0;
}

std::string stopped_in_words(const PeerInfo& mine, const PeerInfo& peer) {
  if (peer.machine != mine.machine || peer.pid_namespace != mine.pid_namespace ||
      mine.pid_namespace == 0)
    return "";
  std::ifstream file(fmt::format("/proc/{}/stat", peer.pid));
  std::string line;
  std::getline(file, line);
  // The state follows the program's name, which may hold anything.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return "";
  const char state = line[name_end + 2];
  if (state != 'T' && state != 't') return "";
  return fmt::format("; its process (pid {}) is stopped{}", peer.pid,
                     state == 't' ? " by a debugger" : "");
}

}  // namespace weft
