// Sealed records over a socket: what the wire shows, and what the receiver does with other bytes.
#include "plugins/net_socket/sealed_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "plugins/common/connect.h"
#include "src/base/handles.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using namespace net_socket;

// A sender, a receiver, and the test between them.
class SealedSockets : public testing::TestWithParam<Seal::Kind> {
 protected:
  SealedSockets() {
    std::array<int, 2> a{}, b{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a.data()), 0);
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b.data()), 0);
    out_ = Fd(a[0]), out_far_ = Fd(a[1]), in_ = Fd(b[0]), in_far_ = Fd(b[1]);
  }

  // The bytes on the wire for this data.
  std::vector<std::byte> wire_of(SealedSender& sender, const std::vector<std::byte>& data) {
    std::vector<std::byte> wire, piece(1 << 20);
    for (size_t sent = 0; sent < data.size();) {
      const std::array<iovec, 2> parts = {
          {{const_cast<std::byte*>(data.data()) + sent, 1},
           {const_cast<std::byte*>(data.data()) + sent + 1, data.size() - sent - 1}}};
      const ssize_t taken = sender.send(parts);
      EXPECT_TRUE(taken > 0 || errno == EAGAIN);
      if (taken > 0) sent += static_cast<size_t>(taken);
      const ssize_t got = recv(out_far_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (got > 0) wire.insert(wire.end(), piece.begin(), piece.begin() + got);
    }
    return wire;
  }
  // What the receiver makes of these bytes, read in pieces. Empty and errno: it refused them.
  std::vector<std::byte> read(SealedReceiver& receiver, const std::vector<std::byte>& wire,
                              size_t piece) {
    std::vector<std::byte> data, got(piece);
    for (size_t put = 0;;) {
      if (put < wire.size()) {
        const ssize_t sent = send(in_far_.get(), wire.data() + put,
                                  std::min<size_t>(5000, wire.size() - put), MSG_DONTWAIT);
        if (sent > 0) put += static_cast<size_t>(sent);
      }
      const ssize_t taken = receiver.receive(got.data(), got.size());
      if (taken > 0) data.insert(data.end(), got.begin(), got.begin() + taken);
      if (taken < 0 && errno != EAGAIN) return {};
      if (taken < 0 && put == wire.size()) return data;
    }
  }

  const Seal seal_{GetParam(), SessionKey{7}};
  Fd out_, out_far_, in_, in_far_;
};

std::vector<std::byte> text_of(size_t size) {
  constexpr std::string_view kWords = "the quick brown fox ";
  std::vector<std::byte> data(size);
  for (size_t i = 0; i < size; i++) data[i] = static_cast<std::byte>(kWords[i % kWords.size()]);
  return data;
}

bool shows(const std::vector<std::byte>& wire, std::string_view words) {
  const auto* begin = reinterpret_cast<const char*>(wire.data());
  return std::string_view(begin, wire.size()).find(words) != std::string_view::npos;
}

TEST_P(SealedSockets, CarryDataInPiecesOfAnySize) {
  for (const size_t size : {1u, 100u, 65536u, 65537u, 300'000u})
    for (const size_t piece : {1u, 1000u, 100'000u}) {
      if (piece == 1 && size > 1000) continue;
      SealedSender sender(out_.get(), seal_);
      SealedReceiver receiver(in_.get(), seal_);
      const auto data = text_of(size);
      EXPECT_EQ(read(receiver, wire_of(sender, data), piece), data) << size << ' ' << piece;
    }
}

TEST_P(SealedSockets, ShowTheDataOnlyIfTheyDoNotEncrypt) {
  SealedSender sender(out_.get(), seal_);
  const auto wire = wire_of(sender, text_of(100'000));
  for (const char* words : {"quick", "brown", "fox"})
    EXPECT_EQ(shows(wire, words), GetParam() == Seal::Kind::kChecksum);
}

TEST_P(SealedSockets, RefuseWhatWasChangedCutOrMadeWithAnotherKey) {
  SealedSender sender(out_.get(), seal_);
  const auto wire = wire_of(sender, text_of(100'000));
  for (int i = 0; i < 72; i++) {
    auto changed = wire;
    // Every bit of the size of the last record: a longer one must not wait for more than comes.
    const size_t last =
        8 * (wire.size() - 4 - Seal::kTagBytes - 100'000 % SealedSender::kMostBytes);
    const size_t bit = i < 32 ? last + static_cast<size_t>(i)
                              : mix(test_seed(), static_cast<uint64_t>(i)) % (8 * wire.size());
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    SealedReceiver receiver(in_.get(), seal_);
    EXPECT_TRUE(read(receiver, changed, 200'000).empty()) << "bit " << bit;
    EXPECT_EQ(errno, EBADMSG) << "bit " << bit;
    std::array<std::byte, 1 << 16> rest;
    while (recv(in_.get(), rest.data(), rest.size(), MSG_DONTWAIT) > 0) {
    }
  }
  if (GetParam() == Seal::Kind::kChecksum) return;
  SealedReceiver other(in_.get(), Seal(GetParam(), SessionKey{8}));
  EXPECT_TRUE(read(other, wire, 200'000).empty());
  EXPECT_EQ(errno, EBADMSG);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SealedSockets,
                         testing::Values(Seal::Kind::kChecksum, Seal::Kind::kChaCha20Poly1305),
                         [](const auto& tested) {
                           return tested.param == Seal::Kind::kChecksum ? "checksum" : "chacha";
                         });

TEST(Connections, OfDifferentWiresAreRefusedByName) {
  net_common::Interface here;
  here.addresses = {Address::loopback(0)};
  const net_common::Listener listener({here}, 0, random_secret(), Wire::kCheck);
  const net_common::Connector connector(listener.handle(), 1, random_secret(), Wire::kEncrypt);
  EXPECT_TRUE(connector.failed());
  EXPECT_EQ(connector.failure(), "the peer has WEFT_WIRE=check, this process WEFT_WIRE=encrypt");
}

}  // namespace
}  // namespace weft::test
