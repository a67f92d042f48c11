// A few ranks connected by hand: verified programs, FIFOs of any size. The test drives the
// interpreter lane by lane.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/generators/generators.h"
#include "src/base/handles.h"
#include "src/exec/host/target.h"
#include "src/exec/operation.h"
#include "src/schedule/program.h"
#include "src/transport/net_stream.h"
#include "tests/support/sampling.h"

namespace weft::test {

// A collective on int32 data.
struct WorldCall {
  const Generator* generator = nullptr;
  Collective collective;
  bool in_place = false;
  uint64_t count = 1;  // elements per block
  uint64_t slice_bytes = 64;
  bool lend = false;                   // send addresses instead of data
  uint64_t share_from = ~uint64_t{0};  // as in Operation; kWatched only
  uint64_t gap = 0;                    // elements between blocks, which nobody touches

  uint64_t stride() const { return count + gap; }
};

class World {
 public:
  // kNetwork goes through the socket plugin and the proxy. kWatched does so as GPUs do: they ring
  // no bell and lend nothing, and there are several proxies.
  enum class Wire { kMemory, kNetwork, kWatched };
  World(int nranks, uint64_t ring_bytes, Wire wire = Wire::kMemory);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // All three return "" or the error. All ranks run on this thread, their lanes in random order.
  std::string run_in_random_order(const WorldCall& call, Random& random);
  // Each rank has a thread, which sleeps at its doorbell when nothing moves.
  std::string run_in_threads(const WorldCall& call);
  // The same, but `other` may run ranks. It rings no bells, so no thread sleeps. It returns false
  // for a rank that it does not run.
  using Other =
      std::function<bool(const Program& program, const Operation& operation, std::string& wrong)>;
  std::string run_in_threads(const WorldCall& call, const Other& other);

  // How often the busiest FIFO has wrapped.
  uint64_t most_rounds() const;

 private:
  struct Fifo {
    Mapping memory;
    std::shared_ptr<OutStream> out;
    std::shared_ptr<InStream> in;
    SendPort send;
    RecvPort receive;
  };
  struct Rank {
    Program program;
    Operation operation;
    std::vector<int32_t> buffer, scratch, expected;  // buffer: input and output
    size_t output_at = 0;                            // elements
    std::vector<int32_t> before;  // the buffer before the call, if there are gaps
    std::vector<SendPort*> sends;
    std::vector<RecvPort*> receives;
    std::vector<uint64_t> progress;
    std::vector<LaneState> lanes;
    std::vector<bool> done;
    bool all_done() const;
  };

  Fifo& fifo(int from, int to, int channel) {
    return fifos_[static_cast<size_t>((from * peers_ + to) * kChannels + channel)];
  }
  void wire_up(Fifo& fifo, const std::shared_ptr<Network>& network, int from, int to, Wire wire);
  void set_up(const WorldCall& call);
  void fill(const WorldCall& call);
  std::string check() const;
  static bool advance(Rank& rank, size_t lane, std::string& wrong);

  static constexpr int kChannels = 4, kCpuNodes = 2;
  const int peers_;  // ranks, and CPU nodes if memory connects them
  const uint64_t ring_bytes_;
  std::vector<Proxy*> watching_;  // each has a keep_polling() to end
  std::vector<Doorbell> doors_;
  std::deque<Fifo> fifos_;
  std::vector<Rank> ranks_;
  uint64_t sequence_ = 0;
};

}  // namespace weft::test
