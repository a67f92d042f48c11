// The control socket of a connection: words with a payload, in order, without ever waiting. One
// thread at a time.
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
  // Sends and receives what it can.
  void move();
  // The next word that has arrived whole; false: none.
  bool hear(Word& word);
  // What came with it. Throws Error when the sizes differ: the peer is another version.
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
  // The peer's side is closed, and everything it said has been heard. errno, or 0: in order.
  bool ended() const { return ended_; }
  int error() const { return error_; }

 private:
  Fd socket_;
  std::string in_, out_, payload_;
  bool ended_ = false;
  int error_ = 0;
};

}  // namespace weft::net_verbs
