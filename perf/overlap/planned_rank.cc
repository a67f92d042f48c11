// See planned_rank.h.
#include "perf/overlap/planned_rank.h"

#include <algorithm>
#include <stdexcept>

#include "perf/common/device.h"
#include "perf/common/errors.h"

namespace weft::perf::overlap {
namespace {

using workload::PlannedCall;

// The elements of a call: of the whole array, or of a rank's block of it.
size_t elements(const PlannedCall& call, int size) {
  const auto whole = static_cast<size_t>(call.bytes / sizeof(float));
  switch (*call.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return whole / static_cast<size_t>(size);
    default:
      return whole;
  }
}

ncclResult_t collective(const PlannedCall& call, size_t count, const float* send, float* recv,
                        ncclComm_t comm, int rank, cudaStream_t stream) {
  switch (*call.kind) {
    case CollectiveKind::kAllReduce:
      return ncclAllReduce(send, recv, count, ncclFloat, ncclSum, comm, stream);
    case CollectiveKind::kAllGather:
      return ncclAllGather(send, recv, count, ncclFloat, comm, stream);
    case CollectiveKind::kReduceScatter:
      return ncclReduceScatter(send, recv, count, ncclFloat, ncclSum, comm, stream);
    case CollectiveKind::kBroadcast:
      return ncclBroadcast(send, recv, count, ncclFloat, call.root, comm, stream);
    case CollectiveKind::kReduce:
      return ncclReduce(send, recv, count, ncclFloat, ncclSum, call.root, comm, stream);
    case CollectiveKind::kAllToAll:
      return ncclAlltoAll(send, recv, count, ncclFloat, comm, stream);
    case CollectiveKind::kGather:
      return ncclGather(send, recv, count, ncclFloat, call.root, comm, stream);
    case CollectiveKind::kScatter:
      return ncclScatter(send, recv, count, ncclFloat, call.root, comm, stream);
    case CollectiveKind::kSendRecv:
      return rank == 0 ? ncclSend(send, count, ncclFloat, 1, comm, stream)
                       : ncclRecv(recv, count, ncclFloat, 0, comm, stream);
    case CollectiveKind::kAllToAllV:
      break;
  }
  throw std::runtime_error("a collective that this program does not know");
}

bool sums(const PlannedCall& call) {
  return call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduceScatter;
}

}  // namespace

Ids make_ids(const workload::Plan& plan) {
  Ids ids;
  for (const auto& communicator : plan.communicators) {
    auto& mine = ids.emplace_back(communicator.ranks.size());
    for (ncclUniqueId& id : mine) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  }
  return ids;
}

PlannedRank::PlannedRank(const workload::Plan& plan, int rank, const Ids& ids)
    : plan_(plan), rank_(rank) {
  device::select(rank);
  std::vector<double> most(plan.communicators.size(), sizeof(float));
  for (const PlannedCall& call : plan.calls)
    if (call.kind) {
      double& bytes = most[static_cast<size_t>(call.communicator)];
      bytes = std::max(bytes, call.offset + call.bytes + sizeof(float));
    }
  for (size_t c = 0; c < plan.communicators.size(); c++) {
    const auto& instances = plan.communicators[c].ranks;
    for (size_t i = 0; i < instances.size(); i++) {
      const auto it = std::find(instances[i].begin(), instances[i].end(), rank);
      if (it == instances[i].end()) continue;
      Member& member = members_[static_cast<int>(c)];
      member.rank = static_cast<int>(it - instances[i].begin());
      member.size = static_cast<int>(instances[i].size());
      check(ncclCommInitRank(&member.comm, member.size, ids[c][i], member.rank),
            "ncclCommInitRank");
      const auto bytes = static_cast<size_t>(most[c]);
      member.send = static_cast<float*>(device::allocate(bytes));
      member.recv = static_cast<float*>(device::allocate(bytes));
      member.sums = static_cast<float*>(device::allocate(bytes));
      const std::vector<float> ones(bytes / sizeof(float), 1.0f);
      device::copy_in(member.send, ones.data(), ones.size() * sizeof(float));
      device::fill(member.sums, 0, bytes);
    }
  }
  for (const PlannedCall& call : plan.calls)
    if (takes_part(call)) (void)stream_of(call.stream);
}

PlannedRank::~PlannedRank() {
  streams_.clear();
  for (auto& [number, member] : members_) {
    ncclCommDestroy(member.comm);
    ncclMemFree(member.send);
    ncclMemFree(member.recv);
    ncclMemFree(member.sums);
  }
}

RankStream& PlannedRank::stream_of(const std::string& name) {
  auto& stream = streams_[name];
  if (stream == nullptr) {
    bool urgent = false;
    for (const PlannedCall& call : plan_.calls)
      urgent |= call.stream == name && call.kind &&
                plan_.communicators[static_cast<size_t>(call.communicator)].priority > 0;
    stream = make_stream(rank_, urgent);
  }
  return *stream;
}

bool PlannedRank::takes_part(const PlannedCall& call) const {
  if (call.kind) return members_.count(call.communicator) > 0;
  return call.ranks.empty() ||
         std::find(call.ranks.begin(), call.ranks.end(), rank_) != call.ranks.end();
}

void PlannedRank::issue(const PlannedCall& call, RankStream& stream) {
  if (!call.kind) {
    stream.compute(call.us);
    return;
  }
  Member& member = members_.at(call.communicator);
  const size_t count = elements(call, member.size);
  const size_t offset = static_cast<size_t>(call.offset / sizeof(float));
  if (sums(call)) member.summed = std::max(member.summed, offset + count);
  const float* send = member.send + offset;
  float* recv = (sums(call) ? member.sums : member.recv) + offset;
  stream.call([call, count, send, recv, comm = member.comm, rank = member.rank](cudaStream_t on) {
    check(collective(call, count, send, recv, comm, rank, on), call.op.c_str());
  });
}

Ran PlannedRank::run(const std::vector<int>& calls) {
  Ran ran;
  ran.ends_us.assign(plan_.calls.size(), 0);
  RankStream& first = *streams_.begin()->second;
  const MarkPtr start = first.mark();
  for (auto& [name, stream] : streams_)
    if (stream.get() != &first) stream->wait(start);
  std::map<int, MarkPtr> ended;
  for (const int number : calls) {
    const PlannedCall& call = plan_.calls[static_cast<size_t>(number)];
    if (!takes_part(call)) continue;
    RankStream& stream = stream_of(call.stream);
    for (const int before : call.after)
      if (const auto it = ended.find(before);
          it != ended.end() && plan_.calls[static_cast<size_t>(before)].stream != call.stream)
        stream.wait(it->second);
    issue(call, stream);
    ended[number] = stream.mark();
  }
  for (auto& [name, stream] : streams_) stream->finish();
  for (const auto& [number, mark] : ended) {
    ran.ends_us[static_cast<size_t>(number)] = mark->us_since(*start);
    ran.us = std::max(ran.us, ran.ends_us[static_cast<size_t>(number)]);
  }
  return ran;
}

bool PlannedRank::sums_are_right() const {
  for (const auto& [number, member] : members_) {
    if (member.summed == 0) continue;
    for (const size_t at : {size_t{0}, member.summed - 1}) {
      float value = 0;
      device::copy_out(&value, member.sums + at, sizeof(value));
      if (value != static_cast<float>(member.size)) return false;
    }
  }
  return true;
}

}  // namespace weft::perf::overlap
