// See news.h.
#include "src/comm/news.h"

#include <chrono>
#include <cstring>

namespace weft {
namespace {

struct NewsBytes {
  uint8_t kind = 0, primary = 0;
  uint16_t unused = 0;
  int32_t rank = 0, reporter = 0, code = 0;
  int64_t when_us = 0;
};

}  // namespace

std::string News::encode() const {
  const NewsBytes wire{static_cast<uint8_t>(kind),
                       static_cast<uint8_t>(primary),
                       0,
                       rank,
                       reporter,
                       static_cast<int32_t>(code),
                       when_us};
  return std::string(reinterpret_cast<const char*>(&wire), sizeof wire) + text;
}

std::optional<News> News::decode(std::string_view bytes) {
  NewsBytes wire;
  if (bytes.size() < sizeof wire) return std::nullopt;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.kind < static_cast<uint8_t>(Kind::kLeft) ||
      wire.kind > static_cast<uint8_t>(Kind::kStuck) || wire.code < 0 ||
      wire.code >= ncclNumResults)
    return std::nullopt;
  News news;
  news.kind = static_cast<Kind>(wire.kind);
  news.primary = wire.primary != 0;
  news.rank = wire.rank;
  news.reporter = wire.reporter;
  news.code = static_cast<ncclResult_t>(wire.code);
  news.when_us = wire.when_us;
  news.text = bytes.substr(sizeof wire);
  return news;
}

int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace weft
