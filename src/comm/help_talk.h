// How rank 0 and a host that helps talk to each other. help_words.h: what they say.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/config.h"
#include "src/comm/frame.h"
#include "src/comm/help_words.h"
#include "src/transport/handshake.h"
#include "src/transport/socket.h"

namespace weft {

// The secret with which helpers let ranks in. `text`: WEFT_SECRET.
Secret help_secret(const std::string& text);
// The secret of one communicator of ranks and helpers.
Secret helped_secret(const Secret& shared, uint64_t number);

// The environment, without the settings that all members must agree on: those have their defaults.
Config helped_config();
// Memory of a member for its connections, in bytes.
uint64_t helped_memory(int members);

// One end of an authenticated connection. One thread. Functions throw Error.
class HelpTalk {
 public:
  HelpTalk(Fd fd, const Session& session)
      : fd_(std::move(fd)), sealer_(session.out), reader_(session.in) {}
  // Meets the service at an address.
  static HelpTalk with(const std::string& address, const Secret& secret, Deadline deadline);

  void say(const std::string& text, Deadline deadline);
  std::string hear(Deadline deadline);

 private:
  Fd fd_;
  FrameSealer sealer_;
  FrameReader reader_;
};

}  // namespace weft
