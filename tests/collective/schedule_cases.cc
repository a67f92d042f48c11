// See schedule_cases.h.
#include "tests/collective/schedule_cases.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <stdexcept>

#include "src/base/error.h"
#include "tests/schedule/reference_run.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr int kFifoDepth = 64;  // what imports allow
constexpr std::byte kUntouched{0xa5};

// Floats of several magnitudes: sums in another order have other bits.
uint32_t float_bits(int rank, uint64_t index) {
  const uint64_t random = mix(static_cast<uint64_t>(rank), index);
  const auto fraction = static_cast<float>(static_cast<int32_t>(random)) * 0x1p-31f;
  return std::bit_cast<uint32_t>(fraction * static_cast<float>(1u << (random >> 60)));
}

void store(std::byte* at, ncclDataType_t type, uint32_t bits) {
  const auto half = static_cast<uint16_t>(bits >> 16);
  if (type == ncclBfloat16)
    std::memcpy(at, &half, sizeof half);
  else
    std::memcpy(at, &bits, sizeof bits);
}

// Rooted schedules are imported for both modes or not at all.
ProvedFile prove_as_imported(ScheduleFile& file) {
  ProvedFile proved = prove(file, kFifoDepth);
  if (!file.schedule.collective.rooted() || (proved.in_place && proved.out_of_place)) return proved;
  file.in_place = file.out_of_place = file.modes_declared = true;
  return prove(file, kFifoDepth);
}

}  // namespace

uint64_t ScheduleCase::array_bytes() const {
  return count * element_size(type) * static_cast<uint64_t>(collective().array_blocks());
}

std::string ScheduleCase::text() const {
  return fmt::format("{}: {} of {} ranks, root {}, {} elements of {} bytes {}",
                     std::filesystem::path(path).filename().string(), name(collective().kind),
                     collective().nranks, collective().root, count, element_size(type),
                     verified->in_place() ? "in place" : "out of place");
}

CaseMemory::CaseMemory(const ScheduleCase& c) {
  const uint64_t element = element_size(c.type);
  for (int r = 0; r < c.collective().nranks; r++) {
    const BufferLayout at = layout_of(c.collective(), r, c.count, c.verified->in_place());
    before.emplace_back(at.elements * element, kUntouched);
    for (uint64_t i = 0; i < at.inputs; i++)
      store(before.back().data() + (at.input_at + i) * element, c.type, float_bits(r, i));
  }
  after = before;
  weft::Reduction reduction;
  reduction.type = c.type;
  run_reference(*c.verified, reduction, c.count, after);
}

ncclResult_t call_of(const ScheduleCase& c, int rank, std::byte* memory, ncclComm_t comm,
                     cudaStream_t stream) {
  const Collective& k = c.collective();
  const BufferLayout at = layout_of(k, rank, c.count, c.verified->in_place());
  const uint64_t element = element_size(c.type);
  const std::byte* in = memory + at.input_at * element;
  std::byte* out = memory + at.output_at * element;
  switch (k.kind) {
    case CollectiveKind::kAllReduce:
      return ncclAllReduce(in, out, c.count, c.type, ncclSum, comm, stream);
    case CollectiveKind::kReduce:
      return ncclReduce(in, out, c.count, c.type, ncclSum, k.root, comm, stream);
    case CollectiveKind::kBroadcast:
      return ncclBroadcast(in, out, c.count, c.type, k.root, comm, stream);
    case CollectiveKind::kAllGather:
      return ncclAllGather(in, out, c.count, c.type, comm, stream);
    case CollectiveKind::kReduceScatter:
      return ncclReduceScatter(in, out, c.count, c.type, ncclSum, comm, stream);
    case CollectiveKind::kAllToAll:
      return ncclAlltoAll(in, out, c.count, c.type, comm, stream);
    case CollectiveKind::kGather:
      return ncclGather(in, out, c.count, c.type, k.root, comm, stream);
    case CollectiveKind::kScatter:
      return ncclScatter(in, out, c.count, c.type, k.root, comm, stream);
    default:
      return ncclInvalidUsage;
  }
}

std::string difference(const ScheduleCase& c, int rank, const std::vector<std::byte>& expected,
                       const std::vector<std::byte>& got) {
  const BufferLayout at = layout_of(c.collective(), rank, c.count, c.verified->in_place());
  const uint64_t element = element_size(c.type), first = at.output_at * element;
  const uint64_t bytes = at.outputs * element;
  if (std::memcmp(expected.data() + first, got.data() + first, bytes) == 0) return "";
  uint64_t wrong = 0, where = 0;
  for (uint64_t i = at.outputs; i-- > 0;) {
    const uint64_t offset = first + i * element;
    if (std::memcmp(expected.data() + offset, got.data() + offset, element) == 0) continue;
    wrong++;
    where = i;
  }
  return fmt::format("{}: rank {}: {} of {} elements differ, the first is {}", c.text(), rank,
                     wrong, at.outputs, where);
}

std::string other_plan(const ScheduleCase& c, ncclComm_t comm) {
  if (c.collective().root != 0 || c.verified->in_place()) return "";
  const char* plan = "";
  const std::string kind(name(c.collective().kind));
  if (weftPlanOf(comm, kind.c_str(), c.array_bytes(), &plan) != ncclSuccess)
    return c.text() + ": " + ncclGetLastError(comm);
  return plan == c.path ? "" : c.text() + " runs as " + plan;
}

ScheduleCases::ScheduleCases() {
  std::string name = (std::filesystem::temp_directory_path() / "weft-cases-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = name;
}

ScheduleCases::~ScheduleCases() { std::filesystem::remove_all(folder_); }

void ScheduleCases::add(const std::string& name, ScheduleFile file, uint64_t count,
                        ncclDataType_t type) {
  const ProvedFile proved = prove_as_imported(file);
  const auto& any = proved.in_place != nullptr ? proved.in_place : proved.out_of_place;
  const Collective& c = file.schedule.collective;
  const bool uniform = any->uniform_only();
  const auto step = uniform ? static_cast<uint64_t>(file.schedule.chunks) : uint64_t{1};
  count = (count + step - 1) / step * step;
  const uint64_t unit = element_size(type) * static_cast<uint64_t>(c.array_blocks());
  while (!taken_.emplace(c.kind, count * unit).second) count += step;
  file.min_bytes = file.max_bytes = count * unit;
  const std::string path = (folder_ / fmt::format("{:03}-{}.json", files_++, name)).string();
  save_schedule(file, path);
  for (const auto& verified : {proved.out_of_place, proved.in_place})
    if (verified != nullptr) all_.push_back({path, verified, count, type});
}

void ScheduleCases::add_all_of(const std::string& generator, int nranks, uint64_t count,
                               ncclDataType_t type) {
  const Generator* maker = find_generator(generator);
  if (maker == nullptr) throw std::runtime_error("no generator " + generator);
  for (int kind = 0; kind < static_cast<int>(CollectiveKind::kSendRecv); kind++) {
    const Collective collective{static_cast<CollectiveKind>(kind), nranks, 0};
    if (maker->supports(collective)) add_generated(*maker, collective, count, type);
  }
}

void ScheduleCases::add_generated(const Generator& generator, const Collective& collective,
                                  uint64_t count, ncclDataType_t type) {
  const std::string name = fmt::format("{}-{}", generator.name, weft::name(collective.kind));
  ScheduleFile file, in_place;
  file.schedule = generator.make(collective, false);
  in_place.schedule = generator.make(collective, true);
  if (file.schedule != in_place.schedule && !collective.rooted()) {
    file.modes_declared = in_place.modes_declared = true;
    file.in_place = in_place.out_of_place = false;
    add(name + "-in-place", in_place, count, type);
  }
  add(name, file, count, type);
}

std::map<int, ScheduleCases> published_cases(const std::string& folder,
                                             const std::vector<uint64_t>& array_bytes) {
  std::map<int, ScheduleCases> cases;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".xml" || name.find("racy") != std::string::npos) continue;
    std::optional<CollectiveKind> kind;  // one file does not name it
    if (name.find("no-coll") != std::string::npos) kind = CollectiveKind::kAllGather;
    const ScheduleFile file = load_schedule(entry.path(), kind);
    const Collective c = file.schedule.collective;
    for (const uint64_t bytes : array_bytes)
      cases[c.nranks].add(name, file,
                          bytes / sizeof(float) / static_cast<uint64_t>(c.array_blocks()) + 1,
                          ncclFloat32);
  }
  return cases;
}

}  // namespace weft::test
