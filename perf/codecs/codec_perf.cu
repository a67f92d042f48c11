// codec_perf measures the steps of compressed schedules as thread blocks of the lane kernel do
// them, without a network: encoding, decoding, and the sum of three messages and own data for three
// peers. Slots lie in pinned host memory, as those of sockets do, or in device memory. Rates are of
// plain data per second. The bits must be those of the host.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/exec/cuda/kernels/lane_codecs.cuh"
#include "src/exec/host/combine_coded.h"
#include "src/tools/command_line.h"

namespace {

using weft::CodecSpec;
using weft::cuda::LaneArguments;
using weft::cuda::LaneMovement;
using weft::cuda::LaneOperand;

constexpr uint32_t kMostOperands = 8;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
#define CHECK(call) check((call), #call)

// A step of one thread block.
struct alignas(16) Job {
  LaneArguments arguments;
  LaneMovement movement;
  LaneOperand operands[kMostOperands];
  std::byte* at[kMostOperands];  // sources, then destinations
};

__global__ void __launch_bounds__(weft::cuda::kThreads, 1) run_jobs(const Job* jobs, int repeats) {
  __shared__ alignas(16) std::byte room[sizeof(Job)];
  const auto* from = reinterpret_cast<const uint4*>(jobs + blockIdx.x);
  for (uint32_t i = threadIdx.x; i < sizeof(Job) / 16; i += blockDim.x)
    reinterpret_cast<uint4*>(room)[i] = from[i];
  __syncthreads();
  Job& job = *reinterpret_cast<Job*>(room);
  if (threadIdx.x == 0) {
    job.movement.sources = job.at;
    job.movement.destinations = job.at + job.movement.source_count;
    job.movement.operands = job.operands;
  }
  __syncthreads();
  for (int r = 0; r < repeats; r++) {
    weft::cuda::combine_coded<weft::cuda::Native<float>>(job.arguments, job.movement,
                                                         {threadIdx.x, blockDim.x});
    __syncthreads();
  }
}

struct Free {
  bool on_host;
  void operator()(std::byte* memory) const {
    if (on_host) {
      cudaFreeHost(memory);
    } else {
      cudaFree(memory);
    }
  }
};
using Memory = std::unique_ptr<std::byte, Free>;
Memory allocate(size_t bytes, bool on_host) {
  void* memory = nullptr;
  if (on_host) {
    CHECK(cudaMallocHost(&memory, bytes));
  } else {
    CHECK(cudaMalloc(&memory, bytes));
  }
  return {static_cast<std::byte*>(memory), Free{on_host}};
}

struct Settings {
  uint64_t elements = 60416;
  int blocks = 1, repeats = 100;
  bool device = false;
};

// A kind of step: which of its operands are messages.
struct Shape {
  const char* name;
  uint32_t sources;
  std::vector<bool> messages;
};

class Step {
 public:
  Step(const Settings& settings, const CodecSpec& codec, const Shape& shape)
      : settings_(settings), codec_(codec), shape_(shape) {
    for (size_t i = 0; i < shape.messages.size(); i++) {
      expected_.emplace_back(bytes_of(i));
      memory_.push_back(allocate(blocks() * room_of(i), shape.messages[i] && !settings.device));
    }
    run_on_host();
    upload();
  }

  // In GB/s of all blocks.
  double measure() {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const auto* at = reinterpret_cast<const Job*>(jobs_.get());
    run_jobs<<<settings_.blocks, weft::cuda::kThreads>>>(at, settings_.repeats);
    CHECK(cudaEventRecord(begin));
    run_jobs<<<settings_.blocks, weft::cuda::kThreads>>>(at, settings_.repeats);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return 4e-6 * static_cast<double>(settings_.elements * blocks()) * settings_.repeats / ms;
  }
  bool has_bits_of_host() const {
    for (size_t i = shape_.sources; i < memory_.size(); i++)
      for (size_t b = 0; b < blocks(); b++) {
        std::vector<std::byte> found(bytes_of(i));
        CHECK(cudaMemcpy(found.data(), memory_[i].get() + b * room_of(i), found.size(),
                         cudaMemcpyDefault));
        if (found != expected_[i]) return false;
      }
    return true;
  }

 private:
  size_t blocks() const { return static_cast<size_t>(settings_.blocks); }
  size_t bytes_of(size_t i) const {
    return shape_.messages[i] ? encoded_bytes(codec_, settings_.elements, 4)
                              : 4 * settings_.elements;
  }
  size_t room_of(size_t i) const { return (bytes_of(i) + 255) / 256 * 256; }
  weft::host::CodedOperand operand(size_t i) {
    return {expected_[i].data(), shape_.messages[i] ? &codec_ : nullptr, shape_.messages[i]};
  }

  // Numbers of any size in messages and memory, and what the host makes of them. Nobody writes the
  // padding of messages: it stays zero.
  void run_on_host() {
    uint32_t state = 1;
    std::vector<float> plain(settings_.elements);
    for (size_t i = 0; i < shape_.sources; i++) {
      for (float& value : plain) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-24f;
      }
      const weft::host::CodedOperand from{reinterpret_cast<std::byte*>(plain.data())},
          to = operand(i);
      combine_coded({}, &from, 1, 0, false, &to, 1, settings_.elements, nullptr);
    }
    std::vector<weft::host::CodedOperand> operands;
    for (size_t i = 0; i < expected_.size(); i++) operands.push_back(operand(i));
    combine_coded({}, operands.data(), shape_.sources, 0, false, operands.data() + shape_.sources,
                  static_cast<uint32_t>(operands.size()) - shape_.sources, settings_.elements,
                  nullptr);
  }
  void upload() {
    for (size_t i = 0; i < memory_.size(); i++) {
      CHECK(cudaMemset(memory_[i].get(), 0, blocks() * room_of(i)));
      for (size_t b = 0; b < blocks() && i < shape_.sources; b++)
        CHECK(cudaMemcpy(memory_[i].get() + b * room_of(i), expected_[i].data(), bytes_of(i),
                         cudaMemcpyDefault));
    }
    std::vector<Job> jobs(blocks());
    for (size_t b = 0; b < blocks(); b++) {
      Job& job = jobs[b];
      job.arguments.codecs[0] = codec_;
      job.arguments.codec_block = codec_.block;
      job.arguments.element = 4;
      job.movement = {};
      job.movement.elements = settings_.elements;
      job.movement.source_count = shape_.sources;
      job.movement.destination_count = static_cast<uint32_t>(memory_.size()) - shape_.sources;
      for (size_t i = 0; i < memory_.size(); i++) {
        job.operands[i].kind = shape_.messages[i] ? LaneOperand::kMessage : LaneOperand::kScratch;
        job.operands[i].codec = shape_.messages[i] ? 1 : 0;
        job.at[i] = memory_[i].get() + b * room_of(i);
      }
    }
    jobs_ = allocate(jobs.size() * sizeof(Job), false);
    CHECK(cudaMemcpy(jobs_.get(), jobs.data(), jobs.size() * sizeof(Job), cudaMemcpyDefault));
  }

  const Settings& settings_;
  const CodecSpec codec_;
  const Shape& shape_;
  std::vector<std::vector<std::byte>> expected_;  // of each operand
  std::vector<Memory> memory_;                    // the same of all blocks
  Memory jobs_{nullptr, Free{false}};
};

// False: some bits differ.
bool measure_all(const Settings& settings, const std::vector<std::string>& codecs) {
  const Shape shapes[] = {{"encode", 1, {false, true}},
                          {"decode", 1, {true, false}},
                          {"sum", 4, {false, true, true, true, false, true, true, true}}};
  std::printf("# %llu elements of float, %d blocks, slots in %s memory, GB/s of plain data\n",
              static_cast<unsigned long long>(settings.elements), settings.blocks,
              settings.device ? "device" : "host");
  bool right = true;
  for (const std::string& name : codecs) {
    std::printf("%-28s", name.c_str());
    for (const Shape& shape : shapes) {
      Step step(settings, weft::parse_codec_spec(name), shape);
      std::printf("  %s %7.2f", shape.name, step.measure());
      if (step.has_bits_of_host()) continue;
      right = false;
      std::printf(" (WRONG BITS)");
    }
    std::printf("\n");
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::vector<std::string> codecs = {"int8", "int4", "fp8", "onebit", "topk:density=0.01", "widen"};
  weft::CommandLine program("codec_perf", "Codecs as thread blocks of the lane kernel run them");
  program.add_option("--elements", settings.elements, "of a slice").positive();
  program.add_option("-b,--blocks", settings.blocks, "thread blocks").between(1, 1024);
  program.add_option("-r,--repeats", settings.repeats, "of each step").between(1, 1000000);
  program.add_flag("--device", settings.device, "slots in device memory, not in host memory");
  program.add_option("codecs", codecs, "such as int8:block=64; none: all kinds");
  int code = 0;
  program.calls([&] {
    try {
      code = measure_all(settings, codecs) ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "codec_perf: %s\n", error.what());
      code = 3;
    }
  });
  const int usage = program.run(argc, argv);
  return usage != 0 ? usage : code;
}
