// See help_words.h.
#include "src/comm/help_words.h"

#include <cstddef>

#include "algorithms/generators/helped.h"
#include "src/base/error.h"

namespace weft {
namespace {

constexpr int kMostHelpedRanks = 4096;
constexpr uint64_t kMostElements = uint64_t{1} << 48;

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

std::optional<HelpInvitation> read_invitation(std::string_view text) {
  const auto invited = from_text<HelpInvitation>(text);
  if (!invited || invited->version != HelpInvitation::kVersion || invited->ranks < 2 ||
      invited->ranks > kMostHelpedRanks || invited->members <= invited->ranks ||
      invited->members > invited->ranks + kMostCpuNodes)
    return {};
  return invited;
}

std::optional<HelpStart> read_start(std::string_view text, const HelpInvitation& invited) {
  const auto start = from_text<HelpStart>(text);
  if (!start || start->ranks != invited.ranks || start->members > invited.members ||
      start->member < start->ranks || start->member >= start->members || !start->at.is_sane())
    return {};
  return start;
}

HelpJob read_job(std::string_view bytes) {
  const auto refuse = [](const std::string& why) {
    fail(ncclInvalidUsage, "ranks ask for a sum that cannot be: {}", why);
  };
  if (bytes.size() != sizeof(HelpJob)) refuse("it is of another version");
  // Enums and bools must be such before they are read.
  constexpr size_t kAt = offsetof(HelpJob, reduction);
  if (number_at(bytes, kAt + offsetof(Reduction, type)) >= ncclNumTypes ||
      number_at(bytes, kAt + offsetof(Reduction, op)) >= ncclNumOps ||
      static_cast<uint8_t>(bytes[kAt + offsetof(Reduction, premultiply)]) > 1)
    refuse("nobody knows its type or operator");
  HelpJob job = *from_text<HelpJob>(bytes);
  job.reduction.scalar_at = nullptr;  // in another process
  if (job.count == 0) return job;
  const ncclDataType_t type = job.reduction.type;
  if (job.count > kMostElements) refuse(fmt::format("it has {} elements", job.count));
  if (static_cast<uint8_t>(job.codec.kind) >= kCodecs) refuse("nobody knows its codec");
  if (job.codec.kind == Codec::kNone) return job;
  if (const std::string why = fault_of(job.codec); !why.empty()) refuse(why);
  if (type != ncclFloat32 && type != ncclFloat16 && type != ncclBfloat16)
    refuse("only float32, float16 and bfloat16 are compressed");
  if (!job.codec.lossy()) refuse("its codec loses nothing");
  return job;
}

}  // namespace weft
