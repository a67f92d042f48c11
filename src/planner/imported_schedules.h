// Schedules from the user: WEFT_SCHEDULES, and MSCCL's MSCCL_XML_FILES and MSCCL_ALGO_DIR.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/config.h"
#include "src/schedule/schedule_file.h"

namespace weft {

// A proved schedule and the calls it is for. Immutable.
struct ImportedSchedule {
  std::string path;
  Collective collective;
  int chunks = 1;
  uint64_t min_bytes = 0, max_bytes = 0;
  // nullptr: not for such calls. In rooted collectives only some ranks have both buffers and could
  // tell. So there both are set.
  std::shared_ptr<const VerifiedSchedule> in_place, out_of_place;
  bool uniform_only = false;                    // correct only if `chunks` divides the count
  int fifo_depth = 1;                           // messages that a FIFO must hold
  int most_step_chunks = 1;                     // chunks in one message
  std::string text;                             // as bytes, for other ranks
  uint64_t hash = 0;                            // of everything that decides when and how it runs
  std::map<std::pair<int, int>, int> channels;  // between two ranks that use more than one

  int cpu_nodes() const;  // that it needs
  const std::vector<CodecSpec>& codecs() const;
  bool lossy() const;  // some codec loses something
};

// The parts of a call that the choice depends on. All but `in_place` are equal on all ranks. If
// ranks differ in it, message headers show that they chose differently (see MessageHeader::plan).
struct PlanCall {
  Collective collective;
  size_t bytes = 0;    // of the whole array, as in nccl-tests
  size_t count = 0;    // elements per block
  size_t element = 1;  // bytes
  bool in_place = false;
  bool captured = false;  // it becomes part of a CUDA graph
  // What is moved or summed. Codecs are for floats, and for sums of them.
  enum class Numbers : uint8_t { kOtherTypes, kOtherOperators, kFloatSums };
  Numbers numbers = Numbers::kOtherTypes;

  size_t message_bytes() const { return count * element; }
  // Any call of that size, out of place, of whole bytes.
  static PlanCall of_size(const Collective& collective, size_t bytes);
  // The same of sums of float32; of bytes where floats do not fill it.
  static PlanCall of_floats(const Collective& collective, size_t bytes);
};

// Why a schedule for the right collective cannot serve a call.
enum class Unfit : uint8_t { kNone, kRoot, kMode, kSize, kCount, kCaptured, kNumbers, kLossy };
Unfit unfit(const ImportedSchedule& schedule, const PlanCall& call);
// "it is for 1024 to 4096 bytes"
std::string describe(Unfit why, const ImportedSchedule& schedule);

// The schedules that one communicator may use; the first match wins. Immutable, so any thread may
// call.
class ImportedSchedules {
 public:
  // Reads and proves the configured schedules, for communicators of `nranks` ranks. Each file is
  // read and proved once per process and number of ranks. A log line then says what it is for, or
  // which rule excludes it. `tell`: also log which schedules others hide; one rank does.
  static std::shared_ptr<const ImportedSchedules> load(const Config& config, int nranks, bool tell);
  // A single schedule, whatever the environment says. Throws if it cannot be used.
  static std::shared_ptr<const ImportedSchedules> only(const ScheduleFile& file,
                                                       const std::string& path);

  // The schedules that rank 0 made for this machine, by name. Each is read and proved once per
  // process. Throws if one cannot be used.
  static std::shared_ptr<const ImportedSchedules> from_texts(
      const std::vector<std::pair<std::string, std::string>>& files);
  // Schedules that are imported already.
  static std::shared_ptr<const ImportedSchedules> of(
      const std::vector<std::shared_ptr<const ImportedSchedule>>& list);
  // `first`, then `second`. Connections must be able to carry all of them.
  static std::shared_ptr<const ImportedSchedules> both(const ImportedSchedules& first,
                                                       const ImportedSchedules& second);

  const std::vector<std::shared_ptr<const ImportedSchedule>>& all() const { return all_; }
  // Equal on ranks that have the same schedules in the same order.
  uint64_t fingerprint() const { return fingerprint_; }
  // The least number of channels from one rank to another.
  int channels(int source, int destination) const;
  int most_channels() const { return most_channels_; }

 private:
  void add(std::shared_ptr<const ImportedSchedule> schedule);

  std::vector<std::shared_ptr<const ImportedSchedule>> all_;
  uint64_t fingerprint_ = 0;
  int most_channels_ = 0;
};

}  // namespace weft
