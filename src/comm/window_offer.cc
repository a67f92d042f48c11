// See window_offer.h.
#include "src/comm/window_offer.h"

#include <cstring>

namespace weft {
namespace {

constexpr uint64_t kOfferTag = 0x776f646e69772031;

struct OfferHead {
  uint64_t tag = kOfferTag;
  uint64_t address = 0, size = 0, segment = 0, segment_offset = 0, lead = 0;
  uint64_t parts = 0;
};

using OfferPart = cuda::LentWindow::Part;
static_assert(sizeof(OfferPart) == 24);

}  // namespace

std::string encode(const WindowOffer& offer) {
  OfferHead head;
  head.address = offer.address;
  head.size = offer.size;
  head.segment = offer.segment;
  head.segment_offset = offer.segment_offset;
  head.lead = offer.lent.lead;
  head.parts = offer.lent.parts.size();
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text.append(reinterpret_cast<const char*>(offer.lent.parts.data()),
              head.parts * sizeof(OfferPart));
  return text + offer.why;
}

std::optional<WindowOffer> decode_window_offer(const std::string& text) {
  OfferHead head;
  if (text.size() < sizeof head) return {};
  std::memcpy(&head, text.data(), sizeof head);
  if (head.tag != kOfferTag || (text.size() - sizeof head) / sizeof(OfferPart) < head.parts)
    return {};
  WindowOffer offer;
  offer.address = head.address;
  offer.size = head.size;
  offer.segment = head.segment;
  offer.segment_offset = head.segment_offset;
  offer.lent.lead = head.lead;
  offer.lent.parts.resize(head.parts);
  if (head.parts > 0)
    std::memcpy(offer.lent.parts.data(), text.data() + sizeof head, head.parts * sizeof(OfferPart));
  offer.why = text.substr(sizeof head + head.parts * sizeof(OfferPart));
  return offer;
}

}  // namespace weft
