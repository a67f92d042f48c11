// The texts of several ranks as one, as ranks gather them over control connections.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// What all ranks said, in their order: each text with its 8-byte size in front.
void append_blob(std::string& text, std::string_view blob);
// Nothing if the text is something else.
std::optional<std::vector<std::string>> split_blobs(std::string_view text);

// What some ranks said, for the root of a tree of rendezvous.
struct PartialRound {
  uint32_t type = 0;                 // Frame::kGather or kCollect
  std::map<int, std::string> blobs;  // by rank

  std::string encode() const;
  // Nothing if the text is something else.
  static std::optional<PartialRound> decode(std::string_view text);
};

}  // namespace weft
