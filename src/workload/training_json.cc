// read_training() of training.h.
#include <fmt/format.h>

#include "src/base/error.h"
#include "src/workload/training.h"

namespace weft::workload {
namespace {

int at_least_one(const JsonReader& reader, const char* name, int otherwise) {
  const int value = reader.integer(name, otherwise);
  if (value < 1) reader.refuse(name, "1 or more");
  return value;
}

void read_shape(const JsonReader& reader, Training& training) {
  Model& model = training.model;
  model.layers = at_least_one(reader, "layers", 0);
  model.hidden = at_least_one(reader, "hidden", 0);
  model.heads = at_least_one(reader, "heads", 1);
  model.sequence = at_least_one(reader, "sequence", 0);
  model.vocabulary = reader.integer("vocabulary", 0);
  Layout& layout = training.layout;
  layout.data = at_least_one(reader, "data", 1);
  layout.tensor = at_least_one(reader, "tensor", 1);
  layout.pipeline = at_least_one(reader, "pipeline", 1);
  layout.batch = at_least_one(reader, "batch", 1);
  layout.microbatches = at_least_one(reader, "microbatches", 1);
  layout.zero = reader.integer("zero", 0);
  layout.quantized = reader.flag("zeropp", false);
  layout.element_bytes = reader.number("element_bytes", layout.element_bytes);
  if (reader.flag("recompute", false)) layout.recompute = Recompute::kFull;
}

void check_training(const JsonReader& reader, const Training& training) {
  const Layout& layout = training.layout;
  if (layout.zero > 3) reader.refuse("zero", "from 0 to 3");
  if (layout.quantized && layout.zero != 3) reader.refuse("zeropp", "with zero 3");
  if (training.model.layers % layout.pipeline != 0)
    reader.refuse("layers", "a multiple of 'pipeline'");
  if (static_cast<double>(layout.data) * layout.tensor * layout.pipeline > 1 << 16)
    reader.refuse("data", "less: there are more than 65536 ranks");
  if (training.tflops <= 0) reader.refuse("tflops", "above 0");
  if (layout.quantized && layout.ranks() % training.host_ranks != 0)
    reader.refuse("host_ranks", "a divisor of the number of ranks");
  if (layout.quantized && layout.pipeline > 1) reader.refuse("zeropp", "without pipeline");
  if (training.backward_first && (layout.pipeline > 1 || layout.zero != 0))
    reader.refuse("backward_first", "without pipeline and ZeRO");
  if (training.attention_share < 0 || training.attention_share > 1)
    reader.refuse("attention_share", "from 0 to 1");
  const double ops = 20.0 * training.model.layers * layout.microbatches;
  if (ops > 1 << 20) reader.refuse("microbatches", "less: there are over a million operations");
}

}  // namespace

Training read_training(const JsonReader& file) {
  const nlohmann::json& object = *file.find("training");
  const JsonReader reader{object, file.place + ": training"};
  if (!object.is_object()) fail(ncclInvalidArgument, "{}: not an object", reader.place);
  Training training;
  read_shape(reader, training);
  training.tflops = reader.number("tflops");
  training.layer_parameters = reader.number("layer_parameters", 0);
  training.attention_share = reader.number("attention_share", training.attention_share);
  training.gradient_bytes = reader.number("gradient_bytes", training.gradient_bytes);
  training.moe_every = reader.integer("moe_every", 0);
  training.expert_tokens = reader.number("expert_tokens", 1);
  training.host_ranks = at_least_one(reader, "host_ranks", training.host_ranks);
  training.quantize_gbps = reader.number("quantize_gbps", 0);
  training.min_tokens = reader.integer("min_tokens", 0);
  training.gpipe = reader.flag("gpipe", false);
  training.blocking = reader.flag("blocking", true);
  training.backward_first = reader.flag("backward_first", false);
  training.sms = reader.integer("sms", 0);
  training.comm_sms = reader.integer("comm_sms", 0);
  training.split_us = reader.number("split_us", 0);
  training.optimizer_us = reader.number("optimizer_us", 0);
  check_training(reader, training);
  return training;
}

}  // namespace weft::workload
