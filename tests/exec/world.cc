// Connects the ranks, fills their buffers and drives their lanes.
#include "tests/exec/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "src/exec/interpreter.h"
#include "src/schedule/lower.h"
#include "src/schedule/verify.h"
#include "src/transport/doorbell.h"
#include "src/transport/proxy.h"
#include "tests/transport/loopback_network.h"

namespace weft::test {
namespace {

int32_t element(int rank, size_t i) {
  return static_cast<int32_t>(mix(static_cast<uint64_t>(rank), i) & 0xffffff);
}

}  // namespace

bool World::Rank::all_done() const {
  return std::all_of(done.begin(), done.end(), [](bool d) { return d; });
}

World::World(int nranks, uint64_t ring_bytes, Wire wire)
    : peers_(nranks + (wire == Wire::kMemory ? kCpuNodes : 0)),
      ring_bytes_(ring_bytes),
      doors_(static_cast<size_t>(peers_)),
      fifos_(static_cast<size_t>(peers_ * peers_ * kChannels)) {
  std::shared_ptr<Network> network;
  if (wire != Wire::kMemory) network = loopback_network();
  for (int from = 0; from < peers_; from++) {
    for (int to = 0; to < peers_; to++) {
      for (int channel = 0; channel < kChannels && from != to; channel++) {
        Fifo& f = fifo(from, to, channel);
        Doorbell &sender = doors_[static_cast<size_t>(from)],
                 &receiver = doors_[static_cast<size_t>(to)];
        if (wire != Wire::kMemory) {
          wire_up(f, network, from, to, wire);
          continue;
        }
        f.memory = Mapping::anonymous(sizeof(FifoControl) + ring_bytes);
        auto* control = reinterpret_cast<FifoControl*>(f.memory.data());
        f.send.control = f.receive.control = control;
        f.send.data = f.receive.data = f.memory.data() + sizeof(FifoControl);
        f.send.size = f.receive.size = ring_bytes;
        f.send.peer = to;
        f.receive.peer = from;
        f.send.lending = Lending::kPointer;
        f.send.bell.door = &receiver;
        f.receive.bell.door = &sender;
      }
    }
  }
}

World::~World() {
  for (Proxy* proxy : watching_) proxy->keep_polling(false);
  for (Fifo& f : fifos_) {
    if (f.out != nullptr) f.out->proxy().remove(f.out, 0);
    if (f.in != nullptr) f.in->proxy().remove(f.in, 0);
  }
}

void World::wire_up(Fifo& f, const std::shared_ptr<Network>& network, int from, int to, Wire wire) {
  const int proxies = wire == Wire::kWatched ? 3 : 1;
  auto [sender, receiver] = connect_pair(network);
  f.out = std::make_shared<OutStream>(std::move(sender), Proxy::next(proxies), ring_bytes_,
                                      doors_[static_cast<size_t>(from)], nullptr);
  f.in = std::make_shared<InStream>(std::move(receiver), Proxy::next(proxies), ring_bytes_,
                                    doors_[static_cast<size_t>(to)], nullptr);
  f.send = f.out->port(to);
  f.receive = f.in->port(from);
  f.out->proxy().add(f.out);
  f.in->proxy().add(f.in);
  if (wire != Wire::kWatched) return;
  f.send.lending = Lending::kNever;
  f.send.stream_data = reinterpret_cast<uint64_t>(f.send.data);
  f.receive.direct = false;
  f.send.bell = f.receive.bell = {};
  for (Proxy* proxy : {&f.out->proxy(), &f.in->proxy()}) {
    watching_.push_back(proxy);
    proxy->keep_polling(true);
  }
}

void World::set_up(const WorldCall& call) {
  const VerifiedSchedule verified =
      verify(call.generator->make(call.collective, call.in_place), call.in_place);
  ranks_.clear();
  ranks_.resize(verified.schedule().ranks.size());
  sequence_++;
  for (int r = 0; r < static_cast<int>(ranks_.size()); r++) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    rank.program = lower(verified, r);
    const Program& program = rank.program;
    for (const ProgramPort& port : program.sends)
      rank.sends.push_back(&fifo(r, port.peer, port.channel).send);
    for (const ProgramPort& port : program.receives)
      rank.receives.push_back(&fifo(port.peer, r, port.channel).receive);
    rank.progress.assign(program.lanes.size(), 0);
    rank.lanes.resize(program.lanes.size());
    for (size_t l = 0; l < rank.lanes.size(); l++) rank.lanes[l].lane = static_cast<uint32_t>(l);
    rank.done.assign(program.lanes.size(), false);
    Operation& op = rank.operation;
    const auto chunks = static_cast<uint64_t>(program.chunks);
    op.program = program.view();
    op.count = call.count;
    op.stride = call.stride();
    op.element = sizeof(int32_t);
    op.chunk = (call.count + chunks - 1) / chunks;
    op.slice = call.slice_bytes / op.element;
    op.iterations = std::max<uint64_t>(1, (op.chunk + op.slice - 1) / op.slice);
    if (op.iterations == 1) op.slice = op.chunk;
    op.reduction.type = ncclInt32;
    op.lend_from = call.lend ? 1 : ~uint64_t{0};
    op.share_from = call.share_from;
    op.sequence = sequence_;
    op.collective = static_cast<uint8_t>(call.collective.kind);
    op.root = call.collective.root;
    op.sends = rank.sends.data();
    op.receives = rank.receives.data();
    op.progress = rank.progress.data();
    rank.scratch.resize(static_cast<size_t>(program.scratch_chunks) * op.chunk);
    op.scratch = reinterpret_cast<std::byte*>(rank.scratch.data());
  }
  fill(call);
}

// Fills the buffers of all ranks, in place or one after the other, and the expected outputs.
void World::fill(const WorldCall& call) {
  const Collective& c = call.collective;
  std::vector<std::vector<int32_t>> inputs;
  for (int r = 0; r < static_cast<int>(ranks_.size()); r++) {
    inputs.emplace_back(static_cast<size_t>(c.input_blocks(r)) * call.stride());
    for (size_t i = 0; i < inputs.back().size(); i++) inputs.back()[i] = element(r, i);
  }
  for (int r = 0; r < static_cast<int>(ranks_.size()); r++) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const std::vector<int32_t>& input = inputs[static_cast<size_t>(r)];
    const size_t outputs = static_cast<size_t>(c.output_blocks(r)) * call.stride();
    const Collective::Overlap overlap = c.overlap(r, 1);
    const bool both = call.in_place && outputs > 0 && !input.empty();
    const size_t input_at = both ? static_cast<size_t>(overlap.input_at) * call.stride() : 0;
    rank.output_at = both ? static_cast<size_t>(overlap.output_at) * call.stride() : input.size();
    rank.buffer.assign(std::max(input_at + input.size(), rank.output_at + outputs), -1);
    std::copy(input.begin(), input.end(),
              rank.buffer.begin() + static_cast<std::ptrdiff_t>(input_at));
    rank.operation.input = reinterpret_cast<const std::byte*>(rank.buffer.data() + input_at);
    rank.operation.output = reinterpret_cast<std::byte*>(rank.buffer.data() + rank.output_at);
    rank.before = rank.buffer;
    for (int block = 0; block < c.output_blocks(r); block++) {
      const ChunkGoal goal = c.goal(r, block, 1);
      for (size_t i = 0; i < call.count; i++) {
        int32_t value = 0;
        for (int q = 0; q < c.nranks; q++) {
          if (goal.contributor != ChunkGoal::kEveryone && goal.contributor != q) continue;
          for (int b = 0; b < c.input_blocks(q); b++)
            if (c.start(q, b, 1).id == goal.id)
              value += inputs[static_cast<size_t>(q)][static_cast<size_t>(b) * call.stride() + i];
        }
        rank.expected.push_back(value);
      }
    }
  }
}

std::string World::check() const {
  for (int r = 0; r < static_cast<int>(ranks_.size()); r++) {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    const uint64_t count = rank.operation.count, stride = rank.operation.stride;
    for (size_t i = 0; count > 0 && i < rank.expected.size() / count * stride; i++) {
      const size_t at = rank.output_at + i;
      const int32_t expected =
          i % stride < count ? rank.expected[i / stride * count + i % stride] : rank.before[at];
      if (rank.buffer[at] != expected)
        return fmt::format("rank {} element {} is {}, expected {}", r, i, rank.buffer[at],
                           expected);
    }
  }
  return {};
}

// Returns true when the lane moved.
bool World::advance(Rank& rank, size_t lane, std::string& wrong) {
  host::HostTarget target;
  Interpreter<host::HostTarget> interpreter(rank.operation, target);
  switch (interpreter.advance(rank.lanes[lane])) {
    case Advance::kDone:
      rank.done[lane] = true;
      return true;
    case Advance::kAgain:
      return true;
    case Advance::kBlocked:
      return false;
    case Advance::kFailed:
      wrong = fmt::format("lane {} failed at step {}", lane, rank.lanes[lane].step);
      return false;
  }
  return false;
}

std::string World::run_in_random_order(const WorldCall& call, Random& random) {
  set_up(call);
  std::vector<std::pair<Rank*, size_t>> running;
  for (Rank& rank : ranks_)
    for (size_t l = 0; l < rank.lanes.size(); l++) running.emplace_back(&rank, l);
  std::string wrong;
  for (size_t idle = 0; !running.empty() && wrong.empty();) {
    // Some lanes run for long, so that they get as far ahead as FIFOs let them.
    const size_t chosen = random.below(running.size());
    const auto [rank, lane] = running[chosen];
    bool moved = false;
    for (uint64_t turn = 1 + random.below(20);
         turn > 0 && !rank->done[lane] && advance(*rank, lane, wrong); turn--)
      moved = true;
    idle = moved ? 0 : idle + 1;
    if (idle > 200 * running.size()) return "nothing moves any more";
    if (rank->done[lane]) running.erase(running.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return wrong.empty() ? check() : wrong;
}

std::string World::run_in_threads(const WorldCall& call) { return run_in_threads(call, nullptr); }

std::string World::run_in_threads(const WorldCall& call, const Other& other) {
  using Clock = std::chrono::steady_clock;
  set_up(call);
  std::vector<std::string> wrong(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks_.size(); r++) {
    threads.emplace_back([&, r] {
      Rank& rank = ranks_[r];
      if (other && other(rank.program, rank.operation, wrong[r])) return;
      const auto pass = [&] {
        bool moved = false;
        for (size_t l = 0; l < rank.lanes.size(); l++)
          if (!rank.done[l]) moved = advance(rank, l, wrong[r]) || moved;
        return moved;
      };
      while (!rank.all_done() && wrong[r].empty()) {
        if (pass()) continue;
        if (other) {
          std::this_thread::yield();
          continue;
        }
        const uint32_t ticket = prepare_sleep(doors_[r]);
        if (pass()) continue;
        const auto before = Clock::now();
        sleep(doors_[r], ticket, 20'000'000'000);
        if (Clock::now() - before > std::chrono::seconds(15)) wrong[r] = "a wake-up was lost";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string all = std::accumulate(wrong.begin(), wrong.end(), std::string());
  return all.empty() ? check() : all;
}

uint64_t World::most_rounds() const {
  uint64_t most = 0;
  for (const Fifo& f : fifos_) most = std::max(most, f.send.tail / ring_bytes_);
  return most;
}

}  // namespace weft::test
