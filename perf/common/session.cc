// Goes through types, operators, roots and sizes with all threads in step.
#include "perf/common/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "perf/common/sizes.h"

namespace weft::perf {
namespace {

// The bytes that fit into memory. All processes may share this host.
size_t affordable_bytes(Process& process, const Options& options) {
  const char* local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const int neighbours = local == nullptr ? process.size() : std::max(std::atoi(local), 1);
  const auto buffers =
      2u * static_cast<size_t>(options.threads * options.ranks_per_thread * neighbours);
  const double mine = static_cast<double>(device::memory_limit()) / static_cast<double>(buffers);
  const auto limit = static_cast<size_t>(process.combine(mine, Combine::kMin));
  if (limit >= options.max_bytes) return options.max_bytes;
  if (limit < options.min_bytes) {
    throw UsageError("memory for " + std::to_string(buffers) + " buffers of " +
                     describe_size(options.min_bytes) + " is not there");
  }
  if (process.prints()) std::printf("#\n# Reducing maxBytes to %zu: memory is short\n", limit);
  return limit;
}

Options with_max_bytes(Options options, size_t bytes) {
  options.max_bytes = bytes;
  return options;
}

}  // namespace

Session::Session(Process& process, const Options& options, int argc, char** argv)
    : process_(process),
      options_(options),
      max_bytes_(affordable_bytes(process, options)),
      team_(process, options.threads),
      watch_(process.prints() && isatty(STDERR_FILENO) != 0, options.timeout_s,
             [this](const std::string& what) {
               process_.fail(kExitTimeout, what + " took longer than --timeout", [this] {
                 if (ranks_) ranks_->abort();
               });
             }) {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  const std::vector<DeviceLine> devices = list_devices();
  if (process_.prints()) {
    print_preamble(options_, version);
    print_devices(devices);
    if (!options_.json_file.empty()) {
      json_ = std::make_unique<JsonReport>(options_, argc, argv, version, devices);
    }
  }
}

std::vector<DeviceLine> Session::list_devices() {
  const Split split = Split::from_environment();
  const std::string mine = std::to_string(getpid()) + " " + host_name();
  std::vector<DeviceLine> devices;
  const int each = options_.threads * options_.ranks_per_thread;
  for (const std::string& line : process_.gather(mine)) {
    const size_t space = line.find(' ');
    for (int i = 0; i < each; ++i) {
      const int rank = static_cast<int>(devices.size());
      devices.push_back(
          {rank, split.colour(rank), std::atoi(line.c_str()), line.substr(space + 1), i});
    }
  }
  return devices;
}

int Session::run() {
  watch_.begin("making communicators");
  ranks_ = std::make_unique<Ranks>(process_, team_, options_, max_bytes_);
  watch_.end();
  if (process_.prints()) print_header(options_);
  team_.run([this](int thread) { work(thread); });
  watch_.begin("destroying communicators");
  ranks_->close();
  watch_.end();
  if (process_.prints()) {
    print_footer(totals_);
    if (json_) std::printf("# Results in %s\n", json_->write(totals_).c_str());
  }
  const double failed = process_.prints() && !judge(totals_).ok() ? 1 : 0;
  return process_.combine(failed, Combine::kRank0) != 0 ? kExitFailed : kExitOk;
}

void Session::work(int thread) {
  Bench bench(options_, team_, thread, ranks_->of_thread(thread), max_bytes_);
  const std::vector<Op> ops = kCollective.reduces ? options_.ops : std::vector<Op>{Op::kNone};
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    for (const ncclDataType_t type : options_.types) {
      for (const Op op : ops) run_workload(bench, thread, type, op);
    }
  }
}

void Session::run_workload(Bench& bench, int thread, ncclDataType_t type, Op op) {
  team_.barrier(thread);  // no thread reads the old workload any more
  if (thread == 0) {
    workload_ = {type, op, {}};
    for (int t = 0; t < options_.threads; ++t) {
      for (const LocalRank& rank : ranks_->of_thread(t)) {
        workload_.patterns.try_emplace(rank.nranks, type, op, rank.nranks);
      }
    }
  }
  team_.barrier(thread);
  bench.prepare(workload_);
  const bool every_root = kCollective.rooted && options_.root < 0;
  const int first = every_root ? 0 : options_.root;
  const int last = every_root ? ranks_->smallest_group() - 1 : first;
  for (int root = first; root <= last; ++root) {
    for (const size_t bytes : row_sizes(with_max_bytes(options_, max_bytes_))) {
      if (thread == 0) {
        watch_.begin(std::string(kCollective.program) + " " + describe_size(bytes) + " " +
                     data_type(type).name + " " + op_name(op));
      }
      Row row = bench.measure(bytes, root);
      if (thread == 0) {
        watch_.end();
        report(std::move(row));
      }
    }
  }
  bench.finish();
}

void Session::report(Row row) {
  if (options_.report_timestamps) row.timestamp = timestamp();
  totals_.add(row);
  if (!process_.prints()) return;
  print_row(row);
  if (json_) json_->add(row);
}

}  // namespace weft::perf
