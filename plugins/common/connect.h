// Sets up connections without blocking. A Listener creates a handle. A Connector tries the handle's
// addresses one after the other. One thread at a time per object.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plugins/common/handshake.h"
#include "plugins/common/interfaces.h"
#include "src/base/handles.h"
#include "src/transport/net_abi/common.h"

namespace weft::net_common {

struct Handle {
  static constexpr uint32_t kMagic = 0x57534832;
  static constexpr size_t kAddresses = 4;

  void* state = nullptr;  // the connector's state between calls
  Nonce nonce{};
  uint32_t magic = kMagic;
  uint32_t seals = 0;  // how the listener can protect data, see seals_for()
  Address addresses[kAddresses];
};
static_assert(sizeof(Handle) <= net_abi::kHandleBytes);

// A handle in the caller's memory, at any address. Written back at the end.
class BorrowedHandle {
 public:
  explicit BorrowedHandle(void* memory) : memory_(memory) {
    std::memcpy(&handle_, memory, sizeof handle_);
  }
  ~BorrowedHandle() { std::memcpy(memory_, &handle_, sizeof handle_); }
  BorrowedHandle(const BorrowedHandle&) = delete;
  BorrowedHandle& operator=(const BorrowedHandle&) = delete;
  Handle* operator->() { return &handle_; }
  const Handle& operator*() const { return handle_; }

 private:
  void* memory_;
  Handle handle_;
};

// The sockets of a connection whose two sides have authenticated each other.
struct Joined {
  std::vector<Fd> sockets;
  std::string peer;
  std::vector<Seal> seals;  // per socket; empty: data travels as it is
};

class Listener {
 public:
  // Throws Error if this machine gives no socket.
  Listener(const std::vector<Interface>& interfaces, size_t first,
           const std::optional<Secret>& secret, Wire wire = Wire::kPlain);

  const Handle& handle() const { return handle_; }
  // Empty: not yet.
  std::optional<Joined> join();

 private:
  using Clock = std::chrono::steady_clock;
  struct Newcomer {
    Fd fd;
    ListenerHandshake handshake;
    Clock::time_point since;
  };
  struct Arrived {
    std::vector<Fd> sockets;
    size_t missing = 0;
    std::string peer;
    std::vector<std::optional<Seal>> seals;
  };
  void admit(Newcomer& newcomer);
  bool is_offered(int fd) const;
  bool has_room();

  Handle handle_;
  Secret key_;
  Fd listener_;
  std::vector<Newcomer> newcomers_;
  std::map<uint64_t, Arrived> arrived_;  // by connection
};

class Connector {
 public:
  Connector(const Handle& handle, uint16_t sockets, const std::optional<Secret>& secret,
            Wire wire = Wire::kPlain);

  // Empty: not yet, or never if failed() is true.
  std::optional<Joined> join();
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;
  void open();
  void next_address(const std::string& why);

  std::vector<Address> addresses_;
  Secret key_;
  uint16_t wanted_;
  Seal::Kind seal_ = Seal::Kind::kNone;
  uint64_t connection_ = 0;
  size_t address_ = 0;
  Fd fd_;
  bool connected_ = false;
  std::optional<ConnectorHandshake> handshake_;
  Clock::time_point begun_ = Clock::now(), tried_;
  std::vector<Fd> sockets_;
  std::vector<Seal> seals_;
  std::string failure_, reasons_;
};

}  // namespace weft::net_common
