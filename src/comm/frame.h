// Frames of the control connections, and a reader that cuts a byte stream into frames.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace weft {

struct Frame {
  enum Type : uint32_t {
    kGather = 1,    // rank -> rendezvous: number = round, value = nranks; text = blob
    kGathered = 2,  // rendezvous -> ranks: number = round; text = all blobs, each preceded by its
                    // 8-byte size
    kLeave = 3,     // rank -> rendezvous: goodbye
    kAbort = 4,     // rank -> rendezvous: this rank gave up; text = News
    kLeft = 5,      // rendezvous -> ranks: value = rank
    kFailed = 6,    // rendezvous -> ranks: value = rank; text = News
    kRefused = 7,   // rendezvous -> ranks: the communicator cannot come up; text = why
    kCollect = 9,  // as kGather, but only rank 0 gets the blobs; other ranks get an empty kGathered
    kMoved = 10,   // rank -> rendezvous: goes on at another rendezvous; nobody needs to know
    kNews = 11,    // between processes that watch each other: text = News
    kWelcome = 8,  // rendezvous -> rank: number = token of the rendezvous's process
  };
  uint32_t type = 0;
  int32_t value = 0;
  uint64_t number = 0;
  std::string text;

  std::string encode() const {
    const uint64_t size = text.size();
    std::string out(kHeader, '\0');
    std::memcpy(out.data(), &type, 4);
    std::memcpy(out.data() + 4, &value, 4);
    std::memcpy(out.data() + 8, &number, 8);
    std::memcpy(out.data() + 16, &size, 8);
    return out + text;
  }

  static constexpr size_t kHeader = 24;
  static constexpr uint64_t kLargest = 1u << 30;  // a larger size means that this is no frame
};

// Collects bytes and cuts them into frames. Not thread-safe.
class FrameReader {
 public:
  void append(const char* data, size_t size) { buffer_.append(data, size); }
  // False: no whole frame has arrived. If broken() is true then, the bytes are no frame.
  bool next(Frame& frame) {
    if (buffer_.size() - at_ < Frame::kHeader) return compact();
    uint64_t size = 0;
    std::memcpy(&size, buffer_.data() + at_ + 16, 8);
    if (size > Frame::kLargest) {
      broken_ = true;
      return false;
    }
    if (buffer_.size() - at_ - Frame::kHeader < size) return compact();
    std::memcpy(&frame.type, buffer_.data() + at_, 4);
    std::memcpy(&frame.value, buffer_.data() + at_ + 4, 4);
    std::memcpy(&frame.number, buffer_.data() + at_ + 8, 8);
    frame.text.assign(buffer_, at_ + Frame::kHeader, size);
    at_ += Frame::kHeader + size;
    return true;
  }
  bool broken() const { return broken_; }

 private:
  bool compact() {
    buffer_.erase(0, at_);
    at_ = 0;
    return false;
  }
  std::string buffer_;
  size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace weft
