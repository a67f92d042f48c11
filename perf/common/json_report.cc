// Fills the JSON document as rows come in.
#include "perf/common/json_report.h"

#include <unistd.h>

#include "perf/common/collective.h"
#include "perf/common/device.h"

namespace weft::perf {
namespace {

constexpr int kFileVersion = 3;

void write_columns(JsonWriter& json, const char* key, const Measurement& m) {
  json.begin_object(key);
  json.number("time", m.us);
  json.number("alg_bw", m.algorithm_gbps);
  json.number("bus_bw", m.bus_gbps);
  if (m.wrong) {
    json.number("nwrong", *m.wrong);
  } else {
    json.text("nwrong", "N/A");
  }
  json.end_object();
}

void write_environment(JsonWriter& json) {
  json.begin_array("env");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("NCCL_", 0) == 0 || text.rfind("WEFT_", 0) == 0) json.text({}, text);
  }
  json.end_array();
}

}  // namespace

JsonReport::JsonReport(const Options& options, int argc, char** argv, int library_version,
                       const std::vector<DeviceLine>& devices)
    : options_(options) {
  json_.begin_object();
  json_.number("version", kFileVersion);
  json_.text("start_time", timestamp());
  json_.begin_array("args");
  for (int i = 0; i < argc; ++i) json_.text({}, argv[i]);
  json_.end_array();
  write_environment(json_);
  json_.number("nccl_version", library_version);
  config(devices);
  json_.begin_array("results");
}

void JsonReport::config(const std::vector<DeviceLine>& devices) {
  const Options& o = options_;
  json_.begin_object("config");
  json_.number("nthreads", o.threads);
  json_.number("ngpus", o.ranks_per_thread);
  json_.number("minbytes", o.min_bytes);
  json_.number("maxbytes", o.max_bytes);
  json_.number("stepbytes", o.step_bytes);
  json_.number("stepfactor", o.step_factor);
  json_.number("warmup_iters", o.warmup);
  json_.number("iters", o.iterations);
  json_.number("agg_iters", o.aggregated);
  json_.number("validate", o.checks);
  json_.number("graph", 0);
  json_.number("unalign", o.unalign);
  json_.begin_array("devices");
  for (const DeviceLine& d : devices) {
    json_.begin_object();
    json_.number("rank", d.rank);
    json_.number("group", d.group);
    json_.number("pid", d.pid);
    json_.text("host", d.host);
    json_.number("device", d.device);
    json_.text("name", device::name());
    json_.end_object();
  }
  json_.end_array();
  json_.end_object();
}

void JsonReport::add(const Row& row) {
  json_.begin_object();
  json_.number("size", row.bytes);
  json_.number("count", row.count);
  json_.text("type", data_type(row.type).name);
  json_.text("redop", op_name(row.op));
  json_.number("root", row.root);
  write_columns(json_, "out_of_place", row.out_of_place);
  write_columns(json_, "in_place", row.in_place);
  if (row.iterations) {
    json_.number("i_min", row.iterations->min);
    json_.number("i_max", row.iterations->max);
    json_.number("i_p99", row.iterations->p99);
    json_.number("i_cv", row.iterations->cv);
  }
  if (!row.timestamp.empty()) json_.text("timestamp", row.timestamp);
  json_.number("actual_iterations", options_.iterations);
  json_.text("experiment_name", kCollective.program);
  json_.end_object();
}

std::string JsonReport::write(const Totals& totals) {
  const Verdict verdict = judge(totals);
  json_.end_array();
  json_.begin_object("out_of_bounds");
  json_.number("count", totals.wrong);
  json_.boolean("okay", verdict.data_ok);
  json_.end_object();
  json_.begin_object("average_bus_bandwidth");
  json_.number("bandwidth", totals.average_bus_gbps());
  json_.boolean("okay", verdict.bandwidth_ok);
  json_.end_object();
  json_.begin_array("errors");
  const char* last = ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') json_.text({}, last);
  json_.end_array();
  json_.text("end_time", timestamp());
  json_.end_object();
  return write_new_file(options_.json_file, json_.str());
}

}  // namespace weft::perf
