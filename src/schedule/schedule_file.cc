// See schedule_file.h.
#include "src/schedule/schedule_file.h"

#include <fstream>

#include "src/base/error.h"
#include "src/base/regular_file.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_bytes.h"
#include "src/schedule/schedule_json.h"
#include "src/schedule/schedule_text.h"

namespace weft {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    fail(ncclSystemError, "{}: there is no such file", path.string());
  return read_regular_file(path.string(), kMostScheduleBytes);
}

}  // namespace

ScheduleFile load_schedule(const std::filesystem::path& path,
                           std::optional<CollectiveKind> collective) {
  return parse_schedule(read_text(path), path.string(), collective);
}

ScheduleFile parse_schedule(std::string_view text, const std::string& source,
                            std::optional<CollectiveKind> collective) {
  if (text.starts_with(kScheduleBytes)) return read_schedule_bytes(text, source);
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) fail(ncclInvalidUsage, "{}: the file is empty", source);
  if (text[first] == '<') return read_msccl_xml(text, source, collective);
  if (text[first] == '{') return read_schedule_json(text, source, collective);
  fail(ncclInvalidUsage, "{}:{}: neither MSCCL XML nor JSON", source, line_at(text, first));
}

void save_schedule(const ScheduleFile& file, const std::filesystem::path& path) {
  const std::string text =
      path.extension() == ".xml" ? write_msccl_xml(file) : write_schedule_json(file);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) fail(ncclSystemError, "{}: cannot be written", path.string());
}

ProvedFile prove(const ScheduleFile& file, int fifo_depth) {
  return prove(file, std::make_shared<const Schedule>(file.schedule), fifo_depth);
}

ProvedFile prove(const ScheduleFile& file, const std::shared_ptr<const Schedule>& schedule,
                 int fifo_depth) {
  ProvedFile proved;
  std::string reason;
  const auto attempt = [&](bool in_place) -> std::shared_ptr<const VerifiedSchedule> {
    if (!(in_place ? file.in_place : file.out_of_place)) return nullptr;
    try {
      return std::make_shared<const VerifiedSchedule>(verify(schedule, in_place, fifo_depth));
    } catch (const Error& error) {
      if (file.modes_declared) throw;
      reason = error.what();
      return nullptr;
    }
  };
  proved.out_of_place = attempt(false);
  proved.in_place = attempt(true);
  if (proved.in_place == nullptr && proved.out_of_place == nullptr)
    throw Error(ncclInvalidUsage, reason);
  return proved;
}

}  // namespace weft
