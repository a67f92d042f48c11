// weft volume: the communication and memory of a training step, with the formulas.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/tools/answers.h"
#include "src/tools/commands.h"
#include "src/workload/volumes.h"

namespace weft {
namespace {

namespace wl = workload;

struct VolumeArguments {
  wl::Model model;
  wl::Layout layout;
  std::string topo, recompute = "none";
  bool json = false;
};

std::string in_bytes(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.4g} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.4g} kB", bytes * 1e-3);
  if (bytes < 1e9) return fmt::format("{:.4g} MB", bytes * 1e-6);
  return fmt::format("{:.4g} GB", bytes * 1e-9);
}

void check(const VolumeArguments& arguments) {
  const wl::Layout& layout = arguments.layout;
  if (layout.zero > 0 && layout.data < 2)
    fail(ncclInvalidArgument, "--zero {} needs data parallel ranks: --data", layout.zero);
  if (layout.quantized && layout.zero != 3)
    fail(ncclInvalidArgument, "--zeropp is a form of --zero 3");
  if (layout.sequence_parallel && layout.tensor < 2)
    fail(ncclInvalidArgument, "--sequence-parallel needs tensor parallel ranks: --tensor");
  if (arguments.model.layers % layout.pipeline != 0)
    fail(ncclInvalidArgument, "{} layers do not make {} equal stages", arguments.model.layers,
         layout.pipeline);
  if (arguments.model.heads % layout.tensor != 0)
    fail(ncclInvalidArgument, "{} heads do not divide among {} tensor ranks", arguments.model.heads,
         layout.tensor);
}

void print_volumes(const std::vector<wl::Volume>& volumes, wl::CommCosts* costs) {
  if (volumes.empty()) fmt::print("one rank: nothing is communicated\n");
  for (const wl::Volume& volume : volumes) {
    fmt::print("{:<25} {:>10}  {} = {}\n", volume.what, in_bytes(volume.bytes), volume.formula,
               volume.numbers);
    if (volume.models > 0) fmt::print("{:<36}  {:g} M where N is large\n", "", volume.models);
    if (costs == nullptr) continue;
    for (const wl::Volume::Call& call : volume.calls) {
      const wl::CommCost& cost = costs->cost(call.kind, call.bytes, call.instances);
      fmt::print("{:<36}  {:g} x {} of {} by {} among {}: {} each\n", "", call.times,
                 name(call.kind), in_bytes(call.bytes), cost.plan, call.instances.front().size(),
                 duration(cost.us));
    }
    fmt::print("{:<25} {:>10}\n", "  time of these", duration(wl::time_us(volume, *costs)));
  }
}

void print_text(const VolumeArguments& arguments, wl::CommCosts* costs) {
  const wl::Model& m = arguments.model;
  const wl::Layout& l = arguments.layout;
  fmt::print("{} ranks: data N={}, tensor t={}, pipeline p={}; batch b={}, microbatches m={}\n",
             l.ranks(), l.data, l.tensor, l.pipeline, l.batch, l.microbatches);
  fmt::print("parameters  {:.5g}  l(12h^2+13h) + (v+s)h, l={} h={} v={} s={}; of a rank S={:.5g}\n",
             wl::parameters(m), m.layers, m.hidden, m.vocabulary, m.sequence,
             wl::parameters_of_rank(m, l));
  fmt::print("operations  {:.5g}  {}bslh^2(1+s/6h) + 6bshv, of all ranks in a step\n",
             wl::step_operations(m, l), l.recompute == wl::Recompute::kFull ? 96 : 72);
  fmt::print("M           {}  eS, e={:g} bytes\n\na rank sends in a step\n",
             in_bytes(wl::parameters_of_rank(m, l) * l.element_bytes), l.element_bytes);
  print_volumes(wl::volumes(m, l), costs);
  fmt::print("\na rank keeps\n");
  double all = 0;
  for (const wl::Memory& each : wl::memory(m, l)) {
    fmt::print("{:<25} {:>10}  {}\n", each.what, in_bytes(each.bytes), each.formula);
    all += each.bytes;
  }
  fmt::print("{:<25} {:>10}  K={:g} bytes\n", "together", in_bytes(all), l.optimizer_bytes);
}

void print_json(const VolumeArguments& arguments, wl::CommCosts* costs) {
  nlohmann::ordered_json out;
  out["ranks"] = arguments.layout.ranks();
  out["parameters"] = number(wl::parameters(arguments.model));
  out["parameters_of_rank"] = number(wl::parameters_of_rank(arguments.model, arguments.layout));
  out["operations"] = number(wl::step_operations(arguments.model, arguments.layout));
  out["volumes"] = nlohmann::ordered_json::array();
  for (const wl::Volume& volume : wl::volumes(arguments.model, arguments.layout)) {
    nlohmann::ordered_json entry = {{"what", volume.what},
                                    {"formula", volume.formula},
                                    {"numbers", volume.numbers},
                                    {"bytes", number(volume.bytes)}};
    if (volume.models > 0) entry["models"] = volume.models;
    if (costs != nullptr) entry["time_us"] = number(wl::time_us(volume, *costs));
    out["volumes"].push_back(entry);
  }
  out["memory"] = nlohmann::ordered_json::array();
  for (const wl::Memory& each : wl::memory(arguments.model, arguments.layout))
    out["memory"].push_back(
        {{"what", each.what}, {"formula", each.formula}, {"bytes", number(each.bytes)}});
  fmt::print("{}\n", out.dump());
}

void answer(VolumeArguments& arguments) {
  arguments.layout.recompute = arguments.recompute == "full"        ? wl::Recompute::kFull
                               : arguments.recompute == "selective" ? wl::Recompute::kSelective
                                                                    : wl::Recompute::kNone;
  check(arguments);
  Machine machine;
  std::unique_ptr<wl::CommCosts> costs;
  if (!arguments.topo.empty()) {
    machine = load_machine(arguments.topo);
    const size_t available = gpus(machine).size();
    if (available < static_cast<size_t>(arguments.layout.ranks()))
      fail(ncclInvalidArgument, "{} has {} GPUs, the layout has {} ranks", arguments.topo,
           available, arguments.layout.ranks());
    costs = std::make_unique<wl::CommCosts>(machine);
  }
  if (arguments.json)
    print_json(arguments, costs.get());
  else
    print_text(arguments, costs.get());
}

}  // namespace

void add_volume(Command& program) {
  Command command =
      program.add_command("volume", "what a training step sends and keeps, with the formulas");
  const auto arguments = std::make_shared<VolumeArguments>();
  wl::Model& model = arguments->model;
  wl::Layout& layout = arguments->layout;
  constexpr int kMost = 1 << 20;
  command.add_option("TOPO", arguments->topo, "a machine: then also the time on it");
  command.add_option("--layers", model.layers, "l").required().between(1, kMost);
  command.add_option("--hidden", model.hidden, "h").required().between(1, kMost);
  command.add_option("--heads", model.heads, "a").required().between(1, kMost);
  command.add_option("--sequence", model.sequence, "s, tokens").required().between(1, 1 << 28);
  command.add_option("--vocabulary", model.vocabulary, "v").between(0, 1 << 28);
  command.add_option("--batch", layout.batch, "b, sequences of a microbatch").between(1, kMost);
  command.add_option("--microbatches", layout.microbatches, "m, per step").between(1, kMost);
  command.add_option("--data", layout.data, "N, data parallel ranks").between(1, 1 << 14);
  command.add_option("--tensor", layout.tensor, "t, tensor parallel ranks").between(1, 1 << 10);
  command.add_option("--pipeline", layout.pipeline, "p, stages").between(1, 1 << 10);
  command.add_option("--zero", layout.zero, "stage of ZeRO").between(0, 3);
  command.add_flag("--zeropp", layout.quantized, "ZeRO++, with --zero 3");
  command.add_flag("--sequence-parallel", layout.sequence_parallel, "Megatron's, with --tensor");
  command.add_option("--recompute", arguments->recompute, "activations")
      .one_of({"none", "selective", "full"});
  command.add_option("--element-bytes", layout.element_bytes, "of parameters and activations")
      .between(0.5, 8.0)
      .with_default();
  command.add_option("--optimizer-bytes", layout.optimizer_bytes, "K, per parameter")
      .between(0.0, 64.0)
      .with_default();
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
