// See net_facts.h.
#include "src/transport/net_facts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft {
namespace {

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return value <= 0; });
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::string NetFacts::encode() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }

NetFacts NetFacts::decode(std::string_view text) {
  NetFacts facts;
  if (text.size() != sizeof facts) return facts;
  std::memcpy(&facts, text.data(), sizeof facts);
  if (!std::isfinite(facts.round_trip_us) || !std::isfinite(facts.bytes_per_us)) return {};
  return facts;
}

NetFacts usual_facts(const std::vector<NetFacts>& all) {
  std::vector<double> times, rates;
  for (const NetFacts& facts : all) {
    times.push_back(facts.round_trip_us);
    rates.push_back(facts.bytes_per_us);
  }
  return {median(times), median(rates)};
}

uint64_t lane_fifo_bytes(const NetFacts& facts) {
  const double wanted = 2 * facts.round_trip_us * facts.bytes_per_us;
  uint64_t bytes = kUsualFifoBytes;
  while (bytes < kMostFifoBytes && static_cast<double>(bytes) < wanted) bytes *= 2;
  return bytes;
}

}  // namespace weft
