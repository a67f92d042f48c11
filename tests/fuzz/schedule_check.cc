// See schedule_check.h.
#include "tests/fuzz/schedule_check.h"

#include <cstdio>
#include <cstdlib>

#include "src/base/error.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_json.h"

namespace weft::fuzz {
namespace {

void require(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// The time of a proof grows with the number of chunks, and a few bytes of a file can ask for many.
bool cheap(const Schedule& s) {
  const auto ranks = static_cast<int64_t>(s.ranks.size());
  int64_t scratch = 0;
  for (const RankSchedule& rank : s.ranks) scratch += rank.scratch_chunks;
  return ranks * ranks * s.chunks + scratch < 1 << 16;
}

}  // namespace

void check(const ScheduleFile& file) {
  // The name in an XML file may have characters that JSON's reader refuses.
  try {
    require(read_schedule_json(write_schedule_json(file), "again") == file,
            "JSON comes back as it was written");
  } catch (const Error& error) {
    bool odd = false;
    for (const char c : file.schedule.name) odd = odd || static_cast<unsigned char>(c) < 0x20;
    require(odd, error.what());
  }
  if (!cheap(file.schedule)) return;
  for (const MscclDialect dialect : {MscclDialect::kAzure, MscclDialect::kLegacy}) {
    std::string text;
    try {
      text = write_msccl_xml(file, dialect);
    } catch (const Error&) {
      continue;  // XML cannot express every schedule
    }
    const ScheduleFile once = read_msccl_xml(text, "once");
    require(read_msccl_xml(write_msccl_xml(once, dialect), "twice") == once,
            "XML comes back as it was written");
  }
  prove_if_cheap(file);
}

void prove_if_cheap(const ScheduleFile& file) {
  if (!cheap(file.schedule)) return;
  try {
    prove(file, 2);
  } catch (const Error&) {
  }
}

}  // namespace weft::fuzz
