// See frame.h. On the wire: type, value, number, size of the text (4 bytes, twice), text, tag.
#include "src/comm/frame.h"

#include <cstring>

namespace weft {
namespace {

// The tag covers the place of the frame in its stream, the header, and the text by its digest.
Tag tag_of(const SessionKey& key, uint64_t count, const char* header, const Digest& text_digest) {
  struct {
    uint64_t count;
    char header[Frame::kHeader];
    Digest text;
  } said{count, {}, text_digest};
  std::memcpy(said.header, header, Frame::kHeader);
  return make_tag(key, &said, sizeof said);
}

// The size travels twice, the second time with all bits changed: a reader that believed a size that
// was changed on the way would wait for bytes that never come.
uint64_t coded(size_t size) { return size | ~uint64_t{size} << 32; }

}  // namespace

std::string FrameSealer::seal(const Frame& frame, const Digest& text_digest) {
  const uint64_t size = coded(frame.text.size());
  std::string out;
  out.reserve(Frame::kHeader + frame.text.size() + sizeof(Tag));
  out.append(reinterpret_cast<const char*>(&frame.type), 4);
  out.append(reinterpret_cast<const char*>(&frame.value), 4);
  out.append(reinterpret_cast<const char*>(&frame.number), 8);
  out.append(reinterpret_cast<const char*>(&size), 8);
  const Tag tag = tag_of(key_, count_++, out.data(), text_digest);
  out += frame.text;
  return out.append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

bool FrameReader::next(Frame& frame) {
  if (broken_) return false;
  const size_t there = buffer_.size() - at_;
  if (there < Frame::kHeader) return compact();
  const char* header = buffer_.data() + at_;
  uint64_t code = 0;
  std::memcpy(&code, header + 16, 8);
  const size_t size = code & 0xffffffff;
  if (size > Frame::kLargest || code != coded(size)) {
    broken_ = true;
    return false;
  }
  if (there < Frame::kHeader + size + sizeof(Tag)) return compact();
  std::memcpy(&frame.type, header, 4);
  std::memcpy(&frame.value, header + 4, 4);
  std::memcpy(&frame.number, header + 8, 8);
  frame.text.assign(header + Frame::kHeader, size);
  Tag tag;
  std::memcpy(tag.data(), header + Frame::kHeader + size, tag.size());
  if (!same(tag, tag_of(key_, count_, header, frame.text_digest()))) {
    broken_ = true;
    return false;
  }
  count_++;
  at_ += Frame::kHeader + size + sizeof(Tag);
  return true;
}

bool FrameReader::compact() {
  buffer_.erase(0, at_);
  at_ = 0;
  return false;
}

}  // namespace weft
