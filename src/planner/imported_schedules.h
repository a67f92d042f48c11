// Schedules that the user hands in: WEFT_SCHEDULES, and MSCCL's MSCCL_XML_FILES and MSCCL_ALGO_DIR.
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
  // know, so there both are set.
  std::shared_ptr<const VerifiedSchedule> in_place, out_of_place;
  bool uniform_only = false;                    // right only when the count divides by `chunks`
  int fifo_depth = 1;                           // messages that FIFOs must hold
  int most_step_chunks = 1;                     // chunks in one message
  std::string text;                             // as JSON, for other ranks
  uint64_t hash = 0;                            // of everything that decides when and how it runs
  std::map<std::pair<int, int>, int> channels;  // between two ranks, where it uses more than one

  int cpu_nodes() const;  // that it needs
};

// A call as far as the choice depends on it. All but `in_place` is equal on all ranks; where that
// is not, messages show that ranks chose differently (see MessageHeader::plan).
struct PlanCall {
  Collective collective;
  size_t bytes = 0;    // of the whole array, as in nccl-tests
  size_t count = 0;    // elements per block
  size_t element = 1;  // bytes
  bool in_place = false;
  bool captured = false;  // it becomes part of a CUDA graph

  size_t message_bytes() const { return count * element; }
  // Any call of that size, out of place, of whole bytes.
  static PlanCall of_size(const Collective& collective, size_t bytes);
};

// Why a schedule for the right collective does not serve a call.
enum class Unfit : uint8_t { kNone, kRoot, kMode, kSize, kCount };
Unfit unfit(const ImportedSchedule& schedule, const PlanCall& call);
// "it is for 1024 to 4096 bytes"
std::string describe(Unfit why, const ImportedSchedule& schedule);

// What one communicator may use, first match first. Immutable, so any thread may ask.
class ImportedSchedules {
 public:
  // Reads and proves what the configuration names, for communicators of `nranks` ranks. Files are
  // read and proved once per process and number of ranks; a line of log then says what each is for,
  // or which rule excludes it. `tell`: also say which are hidden by others; one rank does.
  static std::shared_ptr<const ImportedSchedules> load(const Config& config, int nranks, bool tell);
  // A single one, whatever the environment says. Throws if it cannot be used.
  static std::shared_ptr<const ImportedSchedules> only(const ScheduleFile& file,
                                                       const std::string& path);

  // Those that rank 0 has made for this machine, by name: read and proved once per process. Throws
  // if one cannot be used.
  static std::shared_ptr<const ImportedSchedules> from_texts(
      const std::vector<std::pair<std::string, std::string>>& files);
  // Those that are known already.
  static std::shared_ptr<const ImportedSchedules> of(
      const std::vector<std::shared_ptr<const ImportedSchedule>>& list);
  // First those, then these: what connections must be able to carry.
  static std::shared_ptr<const ImportedSchedules> both(const ImportedSchedules& first,
                                                       const ImportedSchedules& second);

  const std::vector<std::shared_ptr<const ImportedSchedule>>& all() const { return all_; }
  // Equal on ranks that have the same schedules in the same order.
  uint64_t fingerprint() const { return fingerprint_; }
  // Channels that messages from one rank to another need, at least.
  int channels(int source, int destination) const;
  int most_channels() const { return most_channels_; }

 private:
  void add(std::shared_ptr<const ImportedSchedule> schedule);

  std::vector<std::shared_ptr<const ImportedSchedule>> all_;
  uint64_t fingerprint_ = 0;
  int most_channels_ = 0;
};

}  // namespace weft
