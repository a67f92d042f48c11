// Fuzzes what rank 0 tells a host that helps: an invitation, where to meet, and the calls.
#include "algorithms/generators/helped.h"
#include "src/comm/help_words.h"
#include "tests/fuzz/wire_check.h"

namespace weft::test {
namespace {

void check_talk(const std::string& text) {
  const auto invited = read_invitation(std::string_view(text).substr(0, sizeof(HelpInvitation)));
  if (!invited || text.size() < sizeof(HelpInvitation)) return;
  require(invited->members > invited->ranks && invited->ranks > 1);
  const auto start = read_start(std::string_view(text).substr(sizeof(HelpInvitation)), *invited);
  if (!start) return;
  require(start->member >= start->ranks && start->member < start->members);
  require(start->members <= start->ranks + kMostCpuNodes);
  require(start->at.address_count <= UniqueId::kMostAddresses);
}

void check_job(const std::string& bytes) {
  const HelpJob job = read_job(bytes);
  require(job.reduction.scalar_at == nullptr);
  if (job.count == 0) return;
  require(element_size(job.reduction.type) > 0 && job.count < (uint64_t{1} << 60));
  require(job.codec.kind == Codec::kNone || fault_of(job.codec).empty());
  require(encoded_bytes(job.codec, job.count, 4) > 0);
}

}  // namespace
}  // namespace weft::test

// The first byte says what the rest is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::test;
  if (size == 0) return 0;
  return check_text(data + 1, size - 1, (data[0] & 1) != 0 ? check_job : check_talk);
}
