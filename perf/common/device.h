// The interface between the perf programs and the memory they test: host memory, or GPUs if the
// library uses them.
#pragma once

#include <cstddef>

#include "nccl.h"

namespace weft::perf::device {

// Null if this build can drive the device that the library uses, else the reason why not.
const char* unavailable();
// The name in "# Using devices" and in the JSON file.
const char* name();

// Makes the device of a rank current. Ranks take devices in turn. Call it before allocate(),
// stream() and the rank's init.
void select(int global_rank);
void* allocate(size_t bytes);
void release(void* memory);
// Memory unknown to the library, which other processes cannot reach. Kept until the end.
void* allocate_plain(size_t bytes);
void copy_in(void* device, const void* host, size_t bytes);
void copy_out(void* host, const void* device, size_t bytes);
void fill(void* device, unsigned char value, size_t bytes);
// Waits for all work given to the stream so far.
void synchronize(cudaStream_t stream);
cudaStream_t stream(int local_rank, bool null_stream);
// The most bytes that buffers of all local ranks together may take.
size_t memory_limit();

}  // namespace weft::perf::device
