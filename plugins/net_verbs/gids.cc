// See gids.h.
#include "plugins/net_verbs/gids.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include "src/base/error.h"

namespace weft::net_verbs {
namespace {

constexpr int kMappedBits = 96;  // of an IPv4 address in a GID
constexpr int kLongestTable = 256;

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// The prefix length of the subnet, from the interface that has the address; 0: no interface has it.
uint8_t prefix_bits_of(const Gid& gid) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return 0;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  const int family = is_ipv4(gid) ? AF_INET : AF_INET6;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_netmask == nullptr || i->ifa_addr->sa_family != family)
      continue;
    const auto bytes = [&](const sockaddr* a) {
      return family == AF_INET ? reinterpret_cast<const uint8_t*>(
                                     &reinterpret_cast<const sockaddr_in*>(a)->sin_addr)
                               : reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr.s6_addr;
    };
    const size_t size = family == AF_INET ? 4 : 16;
    if (std::memcmp(bytes(i->ifa_addr), gid.bytes.data() + 16 - size, size) != 0) continue;
    int bits = 0;
    for (size_t b = 0; b < size; b++) bits += std::popcount(bytes(i->ifa_netmask)[b]);
    return static_cast<uint8_t>(bits + (family == AF_INET ? kMappedBits : 0));
  }
  return 0;
}

struct Subnet {
  Gid base;
  int bits = 0;
};

// "10.0.0.0/8" or "fd00::/64". One address is a subnet too.
Subnet parse_subnet(const std::string& range) {
  const size_t slash = range.find('/');
  const std::string address = range.substr(0, slash);
  const bool ipv4 = address.find(':') == std::string::npos;
  const int most = ipv4 ? 32 : 128;
  const std::optional<int> given =
      slash == std::string::npos ? most : plain_number(range.substr(slash + 1), 0, most);
  Subnet subnet;
  const std::string whole = ipv4 ? "::ffff:" + address : address;
  if (!given || inet_pton(AF_INET6, whole.c_str(), subnet.base.bytes.data()) != 1)
    fail(ncclInvalidUsage,
         "NCCL_IB_ADDR_RANGE={} is no subnet: ADDRESS/BITS, as 10.0.0.0/8 or fd00::/64", range);
  subnet.bits = *given + (ipv4 ? kMappedBits : 0);
  return subnet;
}

}  // namespace

bool is_ipv4(const Gid& gid) {
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.bytes.data(), kMapped.data(), kMapped.size()) == 0;
}

bool is_link_local(const Gid& gid) { return gid.bytes[0] == 0xfe && (gid.bytes[1] & 0xc0) == 0x80; }

std::string describe(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4(gid)) {
    inet_ntop(AF_INET, gid.bytes.data() + 12, text.data(), text.size());
  } else {
    inet_ntop(AF_INET6, gid.bytes.data(), text.data(), text.size());
  }
  const std::string kind = gid.version == 0 ? "" : fmt::format(", RoCE v{}", gid.version);
  return fmt::format("{} (index {}{})", text.data(), gid.index, kind);
}

bool parse_gid(const std::string& text, std::array<uint8_t, 16>& bytes) {
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) return false;
  return std::any_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b != 0; });
}

std::optional<int> plain_number(const std::string& text, int least, int most) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < least || number > most) return std::nullopt;
  return number;
}

std::vector<Gid> read_gids(const std::string& folder) {
  std::vector<Gid> gids;
  for (int index = 0; index < kLongestTable; index++) {
    const std::string number = std::to_string(index);
    const std::string text = first_line(folder + "/gids/" + number);
    if (text.empty()) break;
    Gid gid;
    if (!parse_gid(text, gid.bytes)) continue;
    gid.index = static_cast<uint16_t>(index);
    const std::string type = first_line(folder + "/gid_attrs/types/" + number);
    gid.version = type == "RoCE v2" ? 2 : type == "IB/RoCE v1" ? 1 : 0;
    gid.prefix_bits = prefix_bits_of(gid);
    gids.push_back(gid);
  }
  return gids;
}

std::vector<Gid> usable_gids(const std::vector<Gid>& table, const Config& config, size_t most,
                             std::string& why) {
  std::optional<Subnet> range;
  if (!config.ib_addr_range.empty()) range = parse_subnet(config.ib_addr_range);
  std::vector<Gid> usable;
  std::string seen;
  for (const Gid& gid : table) {
    seen += (seen.empty() ? "" : ", ") + describe(gid);
    if (config.ib_gid_index >= 0) {
      if (gid.index == config.ib_gid_index) usable.push_back(gid);
      continue;
    }
    if (gid.version != config.ib_roce_version) continue;
    if (range && common_bits(gid, range->base) < range->bits) continue;
    usable.push_back(gid);
  }
  const bool ipv4 = config.ib_addr_family != "AF_INET6";
  const auto rank = [&](const Gid& gid) {
    return is_link_local(gid) ? 2 : is_ipv4(gid) != ipv4 ? 1 : 0;
  };
  std::stable_sort(usable.begin(), usable.end(),
                   [&](const Gid& a, const Gid& b) { return rank(a) < rank(b); });
  if (usable.size() > most) usable.resize(most);
  if (usable.empty()) {
    why =
        config.ib_gid_index >= 0
            ? fmt::format("it has no address of index {} (NCCL_IB_GID_INDEX)", config.ib_gid_index)
            : fmt::format("it has no RoCE v{} address{}", config.ib_roce_version,
                          config.ib_addr_range.empty() ? "" : " in " + config.ib_addr_range);
    why += fmt::format("; there are: {}",
                       seen.empty() ? "none (has its interface an IP address?)" : seen);
  }
  return usable;
}

int common_bits(const Gid& a, const Gid& b) {
  int bits = 0;
  for (size_t i = 0; i < a.bytes.size(); i++) {
    const auto differ = static_cast<uint8_t>(a.bytes[i] ^ b.bytes[i]);
    if (differ != 0) return bits + std::countl_zero(differ);
    bits += 8;
  }
  return bits;
}

bool same_subnet(const Gid& a, const Gid& b) {
  // If no interface gives the prefix length, assume the usual one.
  const auto length = [](const Gid& gid) {
    return gid.prefix_bits != 0 ? gid.prefix_bits : is_ipv4(gid) ? kMappedBits + 24 : 64;
  };
  return common_bits(a, b) >= std::max<int>(length(a), length(b));
}

bool match_gids(const std::vector<Gid>& first, const std::vector<Gid>& second, GidPair& pair) {
  int best = -1;
  for (size_t i = 0; i < first.size(); i++)
    for (size_t j = 0; j < second.size(); j++) {
      const Gid &a = first[i], &b = second[j];
      if (is_ipv4(a) != is_ipv4(b) || is_link_local(a) != is_link_local(b)) continue;
      if (a.version != b.version) continue;
      const bool one = same_subnet(a, b);
      // A link-local address does not tell whether two ports are on the same link.
      const int score = is_link_local(a) ? 0 : one ? 1000 : 1 + common_bits(a, b);
      if (score <= best) continue;
      best = score;
      pair = {i, j, one && !is_link_local(a)};
    }
  return best >= 0;
}

}  // namespace weft::net_verbs
