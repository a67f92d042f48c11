// The timing loop, and the check of the results.
#include "perf/common/bench.h"

#include <time.h>

#include <algorithm>
#include <array>

#include "perf/common/check.h"
#include "perf/common/device.h"
#include "perf/common/errors.h"

namespace weft::perf {

Bench::Bench(const Options& options, Team& team, int thread, std::span<LocalRank> ranks,
             size_t max_bytes)
    : options_(options), team_(team), thread_(thread), ranks_(ranks), max_bytes_(max_bytes) {}

void Bench::prepare(const Workload& workload) {
  workload_ = &workload;
  type_size_ = data_type(workload.type).size;
  ops_.assign(ranks_.size(), builtin_op(workload.op));
  if (workload.op != Op::kMulSum) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    std::array<std::byte, 8> scalar{};
    encode(workload.type, mulsum_scalar(ranks_[i].rank), scalar.data());
    check(ncclRedOpCreatePreMulSum(&ops_[i], scalar.data(), workload.type, ncclScalarHostImmediate,
                                   ranks_[i].comm),
          "ncclRedOpCreatePreMulSum");
  }
}

void Bench::finish() {
  if (workload_->op != Op::kMulSum) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    check(ncclRedOpDestroy(ops_[i], ranks_[i].comm), "ncclRedOpDestroy");
  }
}

Row Bench::measure(size_t bytes, int root) {
  root_ = root;
  phases_ = 1;
  shapes_.clear();
  for (const LocalRank& rank : ranks_) {
    shapes_.push_back(kCollective.shape(bytes / type_size_, rank.nranks));
    if (kCollective.phases) phases_ = std::max(phases_, kCollective.phases(rank.nranks));
  }
  Row row;
  row.bytes = shapes_[0].extent() * type_size_;
  row.count = shapes_[0].param;
  row.type = workload_->type;
  row.op = workload_->op;
  row.root = kCollective.rooted ? root : -1;
  row.out_of_place = measure_columns(false, row);
  row.in_place = measure_columns(true, row);
  return row;
}

Measurement Bench::measure_columns(bool in_place, Row& row) {
  write_input(in_place);
  for (int i = 0; i < options_.warmup; ++i) issue(in_place, static_cast<size_t>(i));
  std::vector<double> iteration_us;
  const bool record = options_.per_iteration != 0 && !in_place;
  const double seconds = time_iterations(in_place, record ? &iteration_us : nullptr);
  throw_async_errors();
  if (record) row.iterations = summarize(iteration_us);

  Measurement result;
  const double calls = static_cast<double>(options_.iterations) * options_.aggregated;
  const auto how = static_cast<Combine>(options_.average);
  result.us = team_.combine(thread_, seconds / calls, how) * 1e6;
  const int nranks = ranks_[0].nranks;
  const size_t elements = kCollective.algorithm_elements
                              ? kCollective.algorithm_elements(shapes_[0], nranks)
                              : shapes_[0].extent();
  const double megabytes = static_cast<double>(elements * type_size_) / 1e6;
  result.algorithm_gbps = result.us > 0 ? megabytes * 1e3 / result.us : 0;
  result.bus_gbps = result.algorithm_gbps * kCollective.bus_factor(nranks);

  if (options_.checks == 0 || (in_place && !kCollective.in_place_checked)) return result;
  long long wrong = 0;
  for (int i = 0; i < options_.checks; ++i) {
    write_input(in_place);
    team_.barrier(thread_);
    issue(in_place, 0);
    for (const LocalRank& rank : ranks_) device::synchronize(rank.stream);
    wrong += count_wrong_values(in_place);
  }
  const double total = team_.combine(thread_, static_cast<double>(wrong), Combine::kSum);
  result.wrong = static_cast<long long>(total);
  return result;
}

void Bench::issue(bool in_place, size_t iteration) {
  const bool grouped = ranks_.size() > 1 || options_.aggregated > 1;
  for (int phase = 0; phase < phases_; ++phase) {
    if (grouped) check(ncclGroupStart(), "ncclGroupStart");
    for (int a = 0; a < options_.aggregated; ++a) {
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const LocalRank& rank = ranks_[i];
        if (phase > 0 && phase >= kCollective.phases(rank.nranks)) continue;
        const Buffers at =
            buffers(i, in_place,
                    iteration * static_cast<size_t>(options_.aggregated) + static_cast<size_t>(a));
        check(kCollective.run({at.send, at.recv, shapes_[i].param, workload_->type, type_size_,
                               ops_[i], root_, rank.rank, rank.nranks, rank.comm, rank.stream,
                               phase}),
              kCollective.program);
      }
    }
    if (grouped) check(ncclGroupEnd(), "ncclGroupEnd");
  }
  if (options_.blocking & 1) {
    for (const LocalRank& rank : ranks_) device::synchronize(rank.stream);
  }
  if (options_.blocking & 2) team_.barrier(thread_);
}

double Bench::time_iterations(bool in_place, std::vector<double>* iteration_us) {
  for (const LocalRank& rank : ranks_) device::synchronize(rank.stream);
  team_.barrier(thread_);
  const double start = now();
  double last = start;
  for (int i = 0; i < options_.iterations; ++i) {
    issue(in_place, static_cast<size_t>(i));
    if (iteration_us == nullptr) continue;
    for (const LocalRank& rank : ranks_) device::synchronize(rank.stream);
    const double end = now();
    if (i >= options_.per_iteration_skip) {
      iteration_us->push_back((end - last) * 1e6 / options_.aggregated);
    }
    last = end;
  }
  for (const LocalRank& rank : ranks_) device::synchronize(rank.stream);
  return now() - start;
}

double Bench::now() const {
  timespec at{};
  clock_gettime(options_.report_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &at);
  return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
}

// Small rows move through the whole allocation, so that they do not measure one cached spot.
Bench::Buffers Bench::buffers(size_t local, bool in_place, size_t iteration) const {
  const LocalRank& rank = ranks_[local];
  const Shape& shape = shapes_[local];
  const auto r = static_cast<size_t>(rank.rank);
  const size_t extent = shape.extent() * type_size_;
  const size_t places = extent == 0 ? 1 : std::max<size_t>(max_bytes_ / extent, 1);
  const size_t offset =
      extent * (iteration % places) + static_cast<size_t>(options_.unalign) * type_size_;
  std::byte* const recv = rank.recv.memory + offset;
  if (!in_place) return {rank.send.memory + offset, recv};
  return {element(recv, r * shape.send_in_place, type_size_),
          element(recv, r * shape.recv_in_place, type_size_)};
}

void Bench::write_input(bool in_place) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Buffers at = buffers(i, in_place, 0);
    const size_t extent = shapes_[i].extent() * type_size_;
    poison(buffers(i, false, 0).recv, extent + kGuardBytes);
    const Tile input = workload_->patterns.at(ranks_[i].nranks).input(ranks_[i].rank);
    write_slice(at.send, {input, 0, shapes_[i].send}, workload_->type);
  }
}

long long Bench::count_wrong_values(bool in_place) const {
  size_t wrong = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const LocalRank& rank = ranks_[i];
    const Patterns& patterns = workload_->patterns.at(rank.nranks);
    const std::byte* recv = buffers(i, in_place, 0).recv;
    for (const Segment& s : kCollective.expected(shapes_[i], {rank.rank, rank.nranks, root_})) {
      const bool reduced = s.source == kReduced;
      const Tile tile = reduced ? patterns.reduced() : patterns.input(s.source);
      wrong += count_wrong(element(recv, s.at, type_size_), {tile, s.from, s.count},
                           workload_->type, reduced ? patterns.tolerance() : 0);
    }
    const size_t extent = shapes_[i].extent() * type_size_;
    wrong += count_touched(buffers(i, false, 0).recv + extent, kGuardBytes);
  }
  return static_cast<long long>(wrong);
}

void Bench::throw_async_errors() const {
  for (const LocalRank& rank : ranks_) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(rank.comm, &state), "ncclCommGetAsyncError");
    check(state, "asynchronous work");
  }
}

}  // namespace weft::perf
