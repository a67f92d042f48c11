// The RoCE addresses (GIDs) of a port, and which pair of them two ports should use. Plain functions
// of data. The table comes from /sys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"

namespace weft::net_verbs {

struct Gid {
  std::array<uint8_t, 16> bytes{};
  uint16_t index = 0;
  uint8_t version = 0;      // of RoCE; 0: InfiniBand
  uint8_t prefix_bits = 0;  // of its subnet; 0: unknown
};
static_assert(sizeof(Gid) == 20);

bool is_ipv4(const Gid& gid);
bool is_link_local(const Gid& gid);
std::string describe(const Gid& gid);  // "10.8.0.1 (index 1, RoCE v2)"

// "::ffff:10.8.0.1", or the form in /sys with eight groups of four digits. False: not an address,
// or all zeros.
bool parse_gid(const std::string& text, std::array<uint8_t, 16>& bytes);

// A number of digits and nothing else, within these limits.
std::optional<int> plain_number(const std::string& text, int least, int most);

// All entries of a port's table in `folder`, which is /sys/class/infiniband/DEVICE/ports/PORT.
std::vector<Gid> read_gids(const std::string& folder);

// The GIDs that pass NCCL_IB_GID_INDEX, or NCCL_IB_ROCE_VERSION_NUM, NCCL_IB_ADDR_FAMILY and
// NCCL_IB_ADDR_RANGE. Best first, at most `most`. If empty, `why` says which GIDs exist instead.
// Throws Error if NCCL_IB_ADDR_RANGE is no subnet.
std::vector<Gid> usable_gids(const std::vector<Gid>& table, const Config& config, size_t most,
                             std::string& why);

// The number of leading bits that two addresses share.
int common_bits(const Gid& a, const Gid& b);
bool same_subnet(const Gid& a, const Gid& b);

// The pair of two ports' usable addresses to connect. Both have the same family. A pair in one
// subnet is best, then the longest common prefix. Ties go to the earlier addresses. False: no pair
// fits.
struct GidPair {
  size_t first = 0, second = 0;
  bool one_subnet = false;
};
bool match_gids(const std::vector<Gid>& first, const std::vector<Gid>& second, GidPair& pair);

}  // namespace weft::net_verbs
