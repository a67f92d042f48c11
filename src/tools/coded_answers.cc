// See coded_answers.h.
#include "src/tools/coded_answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/coded.h"
#include "src/schedule/schedule_file.h"
#include "src/tools/answers.h"

namespace weft {

std::vector<CodedCandidate> coded_candidates(const Config& config, const Machine& machine,
                                             const Collective& collective, double bytes,
                                             bool on_gpus) {
  std::vector<CodedCandidate> candidates;
  std::vector<int> hosts = hosts_of_gpus(machine);
  if (bytes == 0 || hosts.size() < static_cast<size_t>(collective.nranks)) return candidates;
  hosts.resize(static_cast<size_t>(collective.nranks));
  const CodecCosts costs = codec_costs(config, on_gpus);
  for (const char* codec : {"int8", "fp8", "int4"}) {
    const CodecSpec spec = parse_codec_spec(codec);
    if (!why_not_coded(collective, hosts, spec).empty()) continue;
    SimulationOptions options;
    options.estimate = true;
    candidates.push_back(evaluate_coded(machine, collective, bytes, spec, options, costs));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.time_us < b.time_us; });
  return candidates;
}

nlohmann::ordered_json to_json(const CodedCandidate& candidate) {
  nlohmann::ordered_json out;
  out["codec"] = describe(candidate.spec);
  out["time_us"] = number(candidate.time_us);
  out["bytes"] = number(candidate.share);
  out["passes"] = candidate.passes;
  out["error_bound"] = number(candidate.bound);
  return out;
}

void print(const std::vector<CodedCandidate>& candidates, bool on_gpus) {
  if (candidates.empty()) return;
  fmt::print("compressed between hosts (WEFT_COMPRESS, float32{})\n",
             on_gpus ? "; codecs' rates are those of an H200" : "");
  for (const CodedCandidate& candidate : candidates)
    fmt::print(
        "  {:16} {:>10}  {:.3f} of the bytes, {} encoding{}, each within {:.4f} of a block's "
        "largest\n",
        describe(candidate.spec), duration(candidate.time_us), candidate.share, candidate.passes,
        candidate.passes == 1 ? "" : "s", candidate.bound);
}

void synthesize_coded(const CodedSynthesis& asked) {
  const Machine machine = load_machine(asked.machine);
  const CodedCandidate made =
      evaluate_coded(machine, asked.collective, asked.bytes, parse_codec_spec(asked.codec),
                     asked.simulation, codec_costs(Config::from_environment(), true));
  if (!asked.out.empty()) {
    ScheduleFile file;
    file.schedule = made.schedule;
    file.modes_declared = true;
    save_schedule(file, asked.out);
  }
  if (asked.json) {
    nlohmann::ordered_json out;
    out["collective"] = name(asked.collective.kind);
    out["size"] = static_cast<uint64_t>(asked.bytes);
    out["ranks"] = asked.collective.nranks;
    out["engine"] = "coded";
    out["algbw_gbps"] = number(made.algbw_gbps);
    out["verified"] = true;
    out["in_place"] = made.in_place;
    out.update(to_json(made));
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} of {} GPUs on {}, {} bytes of float32\n", name(asked.collective.kind),
             asked.collective.nranks, machine.name, asked.bytes);
  fmt::print("time      {}, {:.4g} GB/s, proved in place and out of place\n",
             duration(made.time_us), made.algbw_gbps);
  print({made}, true);
}

}  // namespace weft
