// weft verify: proves a schedule, or says why it is wrong.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/schedule/schedule_file.h"
#include "src/tools/commands.h"

namespace weft {
namespace {

struct VerifyArguments {
  std::string path, collective;
  int fifo_depth = 2;
  bool json = false;
};

[[noreturn]] void answer_no(const VerifyArguments& arguments, const std::string& reason) {
  if (arguments.json) {
    nlohmann::ordered_json out;
    out["verified"] = false;
    out["reason"] = reason;
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print(stderr, "weft: {}\n", reason);
  }
  throw ExitCode{1};
}

void answer_yes(const VerifyArguments& arguments, const ScheduleFile& file,
                const ProvedFile& proved, double seconds) {
  const Schedule& s = file.schedule;
  size_t steps = 0, lanes = 0;
  for (const RankSchedule& rank : s.ranks)
    for (const Lane& lane : rank.lanes) {
      lanes++;
      steps += lane.steps.size();
    }
  int depth = 1;
  bool uniform = false;
  std::vector<std::string> modes;
  for (const bool in_place : {false, true}) {
    const auto& verified = in_place ? proved.in_place : proved.out_of_place;
    if (verified == nullptr) continue;
    modes.emplace_back(in_place ? "in_place" : "out_of_place");
    depth = std::max(depth, verified->least_fifo_depth());
    uniform = uniform || verified->uniform_only();
  }
  if (!arguments.json) {
    fmt::print("verified: {} of {} ranks, {}, {} chunks a block, {} lanes, {} steps\n",
               name(s.collective.kind), s.collective.nranks,
               modes.size() == 2        ? "in place and out of place"
               : modes[0] == "in_place" ? "in place"
                                        : "out of place",
               s.chunks, lanes, steps);
    fmt::print("FIFOs must hold {} {}; proved in {:.3f} s\n", depth,
               depth == 1 ? "message" : "messages", seconds);
    if (uniform) fmt::print("only for counts that divide by {}\n", s.chunks);
    return;
  }
  nlohmann::ordered_json out;
  out["verified"] = true;
  out["collective"] = name(s.collective.kind);
  out["ranks"] = s.collective.nranks;
  out["chunks"] = s.chunks;
  out["lanes"] = lanes;
  out["steps"] = steps;
  out["modes"] = modes;
  out["least_fifo_depth"] = depth;
  out["uniform_counts_only"] = uniform;
  out["seconds"] = seconds;
  fmt::print("{}\n", out.dump());
}

void verify_file(const VerifyArguments& arguments) {
  std::optional<CollectiveKind> kind;
  if (!arguments.collective.empty()) kind = parse_collective(arguments.collective);
  try {
    const ScheduleFile file = load_schedule(arguments.path, kind);
    const auto start = std::chrono::steady_clock::now();
    ProvedFile proved;
    try {
      proved = prove(file, arguments.fifo_depth);
    } catch (const Error& error) {
      answer_no(arguments, fmt::format("{}: {}", arguments.path, error.what()));
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    answer_yes(arguments, file, proved, taken.count());
  } catch (const Error& error) {
    // A readable file of unknown collective is a negative answer, not an error.
    if (error.code() == ncclInvalidArgument) answer_no(arguments, error.what());
    throw;
  }
}

}  // namespace

void add_verify(Command& program) {
  auto arguments = std::make_shared<VerifyArguments>();
  Command command = program.add_command("verify", "prove a schedule, or say why it is wrong");
  command.add_option("SCHEDULE", arguments->path, "MSCCL XML or Weft JSON").required();
  command.add_option("--coll", arguments->collective, "the collective, where the file lacks it")
      .collective();
  command.add_option("--fifo-depth", arguments->fifo_depth, "messages a FIFO holds (2)")
      .between(1, 1 << 30);
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { verify_file(*arguments); });
}

}  // namespace weft
