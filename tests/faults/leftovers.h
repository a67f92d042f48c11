// What a process holds: descriptors, threads, files in shared memory. Compared before and after.
#pragma once

#include <string>
#include <vector>

namespace weft::test {

// Bytes of address space of this process.
size_t address_space();

class Leftovers {
 public:
  Leftovers();  // as it is now
  // Waits until no more is held than `before`; false after so many seconds. Threads end a little
  // after the call that ended them, a connection to a rank that cannot answer after two seconds,
  // or, if its host does not answer either, after WEFT_PEER_TIMEOUT.
  bool settle_to(const Leftovers& before, int seconds = 5);
  std::string describe() const;

 private:
  int descriptors_ = 0, proxies_ = 0;
  std::vector<std::string> threads_;  // names
  int shared_files_;
  std::string open_;  // what the descriptors are of
};

}  // namespace weft::test
