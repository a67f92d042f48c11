// The control socket of a connection: words with a payload, in order, non-blocking. One thread at a
// time.
#pragma once

#include <cstring>
#include <string>

#include "plugins/net_verbs/wire.h"
#include "src/base/error.h"
#include "src/base/handles.h"

namespace weft::net_verbs {

class Control {
 public:
  explicit Control(Fd socket);

  template <typename Payload>
  void say(Word word, const Payload& payload) {
    const uint32_t head[2] = {static_cast<uint32_t>(word), sizeof payload};
    out_.append(reinterpret_cast<const char*>(head), sizeof head);
    out_.append(reinterpret_cast<const char*>(&payload), sizeof payload);
    move();
  }
  // Sends and receives without blocking.
  void move();
  // The next word that has arrived completely; false: none.
  bool hear(Word& word);
  // The payload of the word. Throws Error if the sizes differ, because the peer is another version.
  template <typename Payload>
  Payload payload() const {
    if (payload_.size() != sizeof(Payload))
      fail(ncclInternalError, "the peer speaks another version of this plugin");
    Payload value;
    std::memcpy(&value, payload_.data(), sizeof value);
    return value;
  }

  int descriptor() const { return socket_.get(); }
  bool has_unsent() const { return !out_.empty(); }
  // The peer has closed its side, and all its words have been read. error(): errno, or 0 for an
  // orderly close.
  bool ended() const { return ended_; }
  int error() const { return error_; }

 private:
  Fd socket_;
  std::string in_, out_, payload_;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace weft::net_verbs
