// Fuzzes the small languages of variables: codecs, which calls travel compressed, interfaces, and
// addresses of RDMA ports.
#include "plugins/net_verbs/gids.h"
#include "src/planner/compression.h"
#include "src/transport/address.h"
#include "tests/fuzz/wire_check.h"

namespace weft::test {
namespace {

void check_codec(const std::string& text) {
  const CodecSpec spec = parse_codec_spec(text);
  require(fault_of(spec).empty() && parse_codec_spec(describe(spec)).kind == spec.kind);
}

void check_compression(const std::string& text) {
  const std::string part = compression_for(text, "dp");
  require(part == "off" || text.find(part) != std::string::npos);
  for (const auto& rule : CompressionSettings::parse(part).rules)
    if (rule) require(fault_of(rule->codec).empty());
}

void check_addresses(const std::string& text) {
  interface_matches(text, "eth0");
  std::array<uint8_t, 16> bytes{};
  if (net_verbs::parse_gid(text, bytes)) require(bytes != std::array<uint8_t, 16>{});
  if (const auto number = net_verbs::plain_number(text, -5, 300))
    require(*number >= -5 && *number <= 300);
}

}  // namespace
}  // namespace weft::test

// The first byte says what the rest is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::test;
  if (size == 0) return 0;
  void (*const reads[])(const std::string&) = {check_codec, check_compression, check_addresses};
  // An error repeats the words, and must be one line.
  const auto* const end = std::find(data + 1, data + size, '\n');
  return check_text(data + 1, static_cast<size_t>(end - data - 1), reads[data[0] % 3]);
}
