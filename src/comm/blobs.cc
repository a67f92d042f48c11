// See blobs.h.
#include "src/comm/blobs.h"

#include <cstring>
#include <limits>

namespace weft {
namespace {

template <typename Plain>
void put_plain(std::string& text, const Plain& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename Plain>
bool take_plain(std::string_view& text, Plain& value) {
  if (text.size() < sizeof value) return false;
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return true;
}

// A size, and so many bytes.
bool take_blob(std::string_view& text, std::string& blob) {
  uint64_t size = 0;
  if (!take_plain(text, size) || size > text.size()) return false;
  blob = text.substr(0, size);
  text.remove_prefix(size);
  return true;
}

}  // namespace

void append_blob(std::string& text, std::string_view blob) {
  put_plain(text, uint64_t{blob.size()});
  text += blob;
}

std::optional<std::vector<std::string>> split_blobs(std::string_view text) {
  std::vector<std::string> blobs;
  while (!text.empty())
    if (!take_blob(text, blobs.emplace_back())) return {};
  return blobs;
}

std::string PartialRound::encode() const {
  std::string text;
  put_plain(text, type);
  for (const auto& [rank, blob] : blobs) {
    put_plain(text, static_cast<uint64_t>(rank));
    append_blob(text, blob);
  }
  return text;
}

std::optional<PartialRound> PartialRound::decode(std::string_view text) {
  PartialRound round;
  if (!take_plain(text, round.type)) return {};
  while (!text.empty()) {
    uint64_t rank = 0;
    std::string blob;
    if (!take_plain(text, rank) || rank > std::numeric_limits<int>::max() ||
        !take_blob(text, blob) || !round.blobs.emplace(rank, std::move(blob)).second)
      return {};
  }
  return round;
}

}  // namespace weft
