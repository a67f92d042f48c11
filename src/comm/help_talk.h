// What rank 0 and a host that helps say to each other: an invitation, an answer, and where the
// communicator of ranks and helpers meets. Then rank 0 announces every call by a HelpJob.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "src/base/config.h"
#include "src/comm/call.h"
#include "src/comm/frame.h"
#include "src/comm/unique_id.h"
#include "src/schedule/codec.h"
#include "src/transport/handshake.h"
#include "src/transport/socket.h"

namespace weft {

struct HelpInvitation {
  static constexpr uint32_t kVersion = 2;
  uint32_t version = kVersion;
  int32_t ranks = 0, members = 0;  // members: ranks and helpers, at most
};

// The communicator of ranks and helpers. Its secret is not sent: both sides derive it.
struct HelpStart {
  uint64_t number = 0;
  int32_t member = 0, members = 0, ranks = 0;
  UniqueId at;
};

// One call, in the words of rank 0's process.
struct HelpJob {
  uint64_t count = 0;   // 0: there are no more calls
  uint64_t number = 0;  // of the operation; ranks skip those of groups that were refused
  Reduction reduction;
  CodecSpec codec;  // of all messages; of no kind: they are plain
};

// Plain structs as texts, and back. Nothing if the text has another size.
template <typename Plain>
std::string as_text(const Plain& plain) {
  static_assert(std::is_trivially_copyable_v<Plain>);
  return {reinterpret_cast<const char*>(&plain), sizeof plain};
}
template <typename Plain>
std::optional<Plain> from_text(const std::string& text) {
  static_assert(std::is_trivially_copyable_v<Plain>);
  Plain plain;
  if (text.size() != sizeof plain) return std::nullopt;
  std::memcpy(static_cast<void*>(&plain), text.data(), sizeof plain);
  return plain;
}

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
