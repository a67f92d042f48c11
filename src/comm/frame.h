// Frames of the control connections. Every frame ends with a tag that only the two ends of the
// connection can make, and a lost, repeated or exchanged frame does not match its tag.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/secret.h"

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
    // Several rendezvous as a tree. A branch gathers for some ranks, the root for all.
    kBranch = 12,   // rank -> branch: value = ranks of the branch, number = its place; text =
                    // UniqueId of the root
    kPartial = 13,  // branch -> root: number = round, value = nranks; text = the blobs
    kHelp = 14,     // between rank 0 and a host that helps, see help_talk.h
  };
  uint32_t type = 0;
  int32_t value = 0;
  uint64_t number = 0;
  std::string text;

  Digest text_digest() const { return digest(text.data(), text.size()); }

  static constexpr size_t kHeader = 24;
  static constexpr uint64_t kLargest = 1u << 30;  // a larger size means that this is no frame
};

// Makes the frames of one direction of a connection (Session::out). The frames must be sent in the
// order in which they were sealed. Not thread-safe.
class FrameSealer {
 public:
  explicit FrameSealer(const SessionKey& key) : key_(key) {}
  std::string seal(const Frame& frame) { return seal(frame, frame.text_digest()); }
  // For a text that goes to many connections: its digest is computed once.
  std::string seal(const Frame& frame, const Digest& text_digest);

 private:
  SessionKey key_;
  uint64_t count_ = 0;
};

// Collects bytes of the other direction (Session::in) and cuts them into frames. Not thread-safe.
class FrameReader {
 public:
  explicit FrameReader(const SessionKey& key) : key_(key) {}
  void append(const char* data, size_t size) { buffer_.append(data, size); }
  // False: no whole frame has arrived. If broken() is true then, the bytes are no frame of the
  // peer's, and no frame follows.
  bool next(Frame& frame);
  bool broken() const { return broken_; }

 private:
  bool compact();

  SessionKey key_;
  uint64_t count_ = 0;
  std::string buffer_;
  size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace weft
