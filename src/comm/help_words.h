// What rank 0 and a host that helps say to each other: an invitation, an answer, and where the
// communicator of ranks and helpers meets. Then rank 0 announces every call by a HelpJob. Whatever
// arrives is checked, because a host that helps serves several jobs. Plain functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "src/comm/unique_id.h"
#include "src/exec/datatype.h"
#include "src/schedule/codec.h"

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
std::optional<Plain> from_text(std::string_view text) {
  static_assert(std::is_trivially_copyable_v<Plain>);
  Plain plain;
  if (text.size() != sizeof plain) return std::nullopt;
  std::memcpy(static_cast<void*>(&plain), text.data(), sizeof plain);
  return plain;
}

// Nothing: no rank 0 of this version says that.
std::optional<HelpInvitation> read_invitation(std::string_view text);
std::optional<HelpStart> read_start(std::string_view text, const HelpInvitation& invited);
// Throws Error if no helper can do this job.
HelpJob read_job(std::string_view bytes);

}  // namespace weft
