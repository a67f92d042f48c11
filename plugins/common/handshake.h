// Authenticates a connector to a listener without blocking. Four messages: the listener's
// challenge; the connector's claim (who it is, proof); the listener's own proof; a byte by which
// the connector chooses this socket and not another address. The key comes from the random nonce in
// the listener's handle, and from the communicator's secret if the library has set one. One thread
// at a time per object.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "src/base/seal.h"
#include "src/base/secret.h"

namespace weft::net_common {

using Nonce = std::array<uint8_t, 16>;

inline constexpr double kHandshakeSeconds = 20;  // then this side gives up

Secret connection_key(const std::optional<Secret>& secret, const Nonce& handle_nonce);

// The connector's claim about a socket: its index, the number of sockets in the connection, and how
// data is sealed.
struct Claim {
  uint32_t magic = 0;
  uint16_t index = 0, count = 0;
  uint64_t connection = 0;  // random; the same for all sockets of a connection
  uint64_t seal = 0;        // Seal::Kind
  Nonce nonce{};
  Proof proof{};
};

// A value that is sent or received in pieces through a non-blocking socket.
template <typename T>
struct Transfer {
  T value{};
  size_t moved = 0;
  bool complete() const { return moved == sizeof(T); }
};

enum class Progress { kWaiting, kDone, kFailed };

class ConnectorHandshake {
 public:
  ConnectorHandshake(const Secret& key, uint64_t connection, uint16_t index, uint16_t count,
                     Seal::Kind seal);
  Progress advance(int fd);
  // For the data that follows. Its key is new for every socket.
  Seal seal() const;

 private:
  Secret key_;
  Transfer<Nonce> challenge_;
  Transfer<Claim> claim_;
  Transfer<Proof> answer_;
  Transfer<uint8_t> word_;
  bool claimed_ = false;
};

class ListenerHandshake {
 public:
  // seals: the kinds that this side can use, see seals_for().
  ListenerHandshake(const Secret& key, uint32_t seals);
  Progress advance(int fd);
  const Claim& claim() const { return claim_.value; }
  Seal seal() const;

 private:
  Secret key_;
  uint32_t seals_;
  Transfer<Nonce> challenge_;
  Transfer<Claim> claim_;
  Transfer<Proof> answer_;
  Transfer<uint8_t> word_;
  bool answered_ = false;
};

}  // namespace weft::net_common
