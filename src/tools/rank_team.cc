// See rank_team.h.
#include "src/tools/rank_team.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "src/base/error.h"

namespace weft {
namespace {

using Work = std::function<RankReport(int rank, const UniqueId& id)>;

void set_error(RankReport& report, const char* text) {
  std::strncpy(report.error, text, sizeof report.error - 1);
}

RankReport play(const Work& work, int rank, const UniqueId& id) {
  try {
    return work(rank, id);
  } catch (const std::exception& error) {
    RankReport report;
    set_error(report, error.what());
    return report;
  }
}

std::vector<RankReport> run_threads(int nranks, const Work& work) {
  std::vector<RankReport> reports(static_cast<size_t>(nranks));
  const UniqueId id = UniqueId::create();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; rank++)
    threads.emplace_back([&, rank] { reports[static_cast<size_t>(rank)] = play(work, rank, id); });
  for (std::thread& thread : threads) thread.join();
  return reports;
}

// Shared by the processes.
struct StartBoard {
  std::atomic<int> ready{0};  // rank 0 has opened the rendezvous; -1: it failed
  UniqueId id;
};

[[noreturn]] void play_in_child(StartBoard& board, RankReport& report, int rank, const Work& work) {
  if (rank == 0) {
    try {
      board.id = UniqueId::create();
      board.ready = 1;
    } catch (const std::exception& error) {
      set_error(report, error.what());
      board.ready = -1;
    }
  }
  while (board.ready == 0) usleep(1000);
  if (board.ready == 1) report = play(work, rank, board.id);
  // No exit handlers: they belong to the process that started this one.
  _exit(0);
}

std::vector<RankReport> run_processes(int nranks, const Work& work) {
  const size_t bytes = sizeof(StartBoard) + sizeof(RankReport) * static_cast<size_t>(nranks);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_errno(errno, "cannot share {} bytes", bytes);
  auto* board = std::construct_at(static_cast<StartBoard*>(memory));
  auto* reports = reinterpret_cast<RankReport*>(board + 1);
  for (int rank = 0; rank < nranks; rank++) std::construct_at(reports + rank);
  std::vector<pid_t> children;
  for (int rank = 0; rank < nranks; rank++) {
    const pid_t child = fork();
    if (child == 0) play_in_child(*board, reports[rank], rank, work);
    if (child < 0) {
      const int error = errno;
      board->ready = -1;  // other ranks must not wait for ranks that do not exist
      for (const pid_t started : children) waitpid(started, nullptr, 0);
      munmap(memory, bytes);
      fail_errno(error, "cannot start a process for rank {}", rank);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < nranks; rank++) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && reports[rank].error[0] == '\0')
      set_error(reports[rank], fmt::format("the process of rank {} died", rank).c_str());
  }
  std::vector<RankReport> result(reports, reports + nranks);
  munmap(memory, bytes);
  return result;
}

}  // namespace

std::vector<RankReport> run_team(int nranks, bool as_processes, const Work& work) {
  return as_processes ? run_processes(nranks, work) : run_threads(nranks, work);
}

void run_on_host(Communicator& comm, host::Batch& batch, const Call& call) {
  comm.begin();
  batch.clear();
  comm.add_to(batch, call);
  if (batch.empty()) return;
  comm.hand_over();
  const host::Outcome outcome = batch.run(0);
  if (outcome.code == ncclSuccess) return;
  const FaultState::Answer answer = comm.give_up(outcome.code, outcome.text);
  throw Error(answer.code, answer.text);
}

}  // namespace weft
