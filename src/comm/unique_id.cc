// See unique_id.h.
#include "src/comm/unique_id.h"

#include <algorithm>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/seal.h"
#include "src/comm/rendezvous.h"
#include "src/transport/acceptor.h"

namespace weft {

UniqueId UniqueId::create() {
  const Config config = Config::from_environment();
  config.require_valid();
  UniqueId id;
  id.host = host_identity(config);
  if (!config.comm_id.empty()) {
    // All ranks derive the same secret. Without WEFT_SECRET it is only as secret as the address.
    const std::string text = config.secret.empty() ? config.comm_id : config.secret;
    id.secret = derive(Secret{}, text);
    id.fixed = 1;
    id.address_count = 1;
    id.addresses[0] = parse_address(config.comm_id);
    if (config.secret.empty() && config.wire == name_of(Wire::kEncrypt))
      fail(ncclInvalidUsage, "WEFT_WIRE=encrypt with NCCL_COMM_ID needs WEFT_SECRET");
    if (config.secret.empty())
      WEFT_WARN("NCCL_COMM_ID is used without WEFT_SECRET: whoever knows the address can join");
    return id;
  }
  id.secret = random_secret();
  const auto addresses = Acceptor::instance().offer(config, kMostAddresses);
  id.address_count = static_cast<uint8_t>(addresses.size());
  std::copy_n(addresses.begin(), id.address_count, id.addresses);
  Rendezvous::open(id.secret);
  return id;
}

Branch branch_of(std::span<const UniqueId> ids, int rank, int nranks) {
  const auto count = static_cast<int64_t>(ids.size());
  const auto first = [&](int64_t place) { return place * nranks / count; };
  const int64_t place = ((rank + int64_t{1}) * count - 1) / nranks;
  return {ids[static_cast<size_t>(place)], static_cast<int>(place),
          static_cast<int>(first(place + 1) - first(place))};
}

std::vector<Address> UniqueId::candidates(uint64_t my_host) const {
  std::vector<Address> result;
  if (host == my_host && fixed == 0) result.push_back(Address::loopback(addresses[0].port));
  result.insert(result.end(), addresses, addresses + address_count);
  return result;
}

}  // namespace weft
