// Host mode: turns calls into tasks of the host executor.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "src/base/error.h"
#include "src/base/handles.h"
#include "src/comm/call.h"
#include "src/comm/compression_count.h"
#include "src/comm/irregular.h"
#include "src/comm/losses.h"
#include "src/comm/lowered_plans.h"
#include "src/comm/operation_builder.h"
#include "src/comm/prepared_calls.h"
#include "src/exec/host/batch.h"

namespace weft {

// Ranks make different calls, so the communicator cannot go on.
class Disagreement : public Error {
  using Error::Error;
};

class HelpingHosts;

// For the thread that makes calls.
class HostTasks {
 public:
  // The arguments must outlive it.
  HostTasks(const Config& config, int nranks, host::RankContext& context, Mesh& mesh,
            PlanChooser& chooser, LoweredPlans& plans, CpuNodes& nodes,
            const OperationBuilder& operations);
  ~HostTasks();

  // Called before the first call of a batch.
  void begin();
  // In words: a message that a rank of this host sent and this one never received; empty: none.
  std::string unreceived() const;
  // Appends the call's task. A call with count 0 adds none. Throws Disagreement if another rank of
  // the host makes a different call.
  void add(host::Batch& batch, const Call& call);
  // Appends one task for all calls of a group, if they are an exchange (irregular.h). False: not.
  bool add_exchange(host::Batch& batch, std::span<const Call* const> calls);
  // Appends this rank's part of a call by a program that is not of the chooser's. The program must
  // outlive the batch. A program without buffers is that of a host that helps.
  host::Task& add_part(host::Batch& batch, const Call& call, const Program& program, uint32_t tag,
                       const char* traced, uint64_t number);
  uint64_t next_number() const { return sequence_; }
  // Calls whose plan needs hosts that help go there. nullptr: there are none.
  void use(std::unique_ptr<HelpingHosts> helpers);
  HelpingHosts* helpers() const { return helpers_.get(); }
  // Whether tasks with this context are of this communicator's calls.
  bool has(const host::RankContext* context) const;
  CompressionCount& compression() { return compression_; }
  void forget_losses() { losses_.forget(); }

 private:
  void compress(const Call& call, const Choice& choice, const Program& program, Operation& op);
  uint64_t lend_from() const;  // the smallest message
  bool pays_to_lend(const Call& call, const Program& program, const Operation& op) const;
  bool lends(const Call& call, const Program& program, const Operation& op) const;
  static void find_segments(const Call& call, const Program& program, Operation& op);
  void compare(const Operation& op) const;
  void add_irregular(host::Batch& batch, const Call& call, const Irregular& blocks, bool messages);
  void add_blocks(const std::vector<Irregular::Block>& blocks, const Call& call, bool messages,
                  std::vector<IrregularBlock>& to) const;
  void complete_with_last(const Call& call) const;
  // What calls of this shape have in common.
  [[gnu::noinline]] void prepare(const Call& call, PreparedCall& known);
  void prepare(const Call& call, const Program& program, uint32_t tag, PreparedCall& to);
  void connect_ports(const Call& call, PreparedCall& to);
  // A task with its operation, which has no number yet.
  host::Task& append(host::Batch& batch, const Call& call, const PreparedCall& known);
  void number(const Call& call, const PreparedCall& known, Operation& op);
  std::byte* scratch(size_t bytes);

  const Config& config_;
  const int nranks_;
  host::RankContext& context_;
  Mesh& mesh_;
  PlanChooser& chooser_;
  LoweredPlans& plans_;
  CpuNodes& nodes_;
  const OperationBuilder& operations_;
  // Set if NCCL_PROTO excludes Simple: then data is copied through FIFOs and never lent.
  std::array<bool, kCollectiveKinds> copies_only_{};
  std::vector<Mapping> scratch_;
  CompressionCount compression_;
  const bool accumulates_;  // in float
  Losses losses_;
  std::unique_ptr<HelpingHosts> helpers_;
  uint64_t sequence_ = 0;
  PreparedCalls prepared_;
  PreparedCall part_;  // of add_part()
  // The latest tasks of the batch being built. The next task of the same kind (and peer) runs after
  // them.
  host::Task* last_collective_ = nullptr;
  std::vector<host::Task*> last_send_, last_receive_;
  bool point_to_point_ = false;
};

// Adds the call's jobs for this rank's CPU nodes.
void add_cpu_parts(const Call& call, const LoweredPlan& plan, uint64_t sequence,
                   const OperationBuilder& operations, CpuNodes& nodes);

}  // namespace weft
