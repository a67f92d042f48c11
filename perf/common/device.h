// The seam between the perf programs and the memory they test: host memory, or GPUs where the
// library uses them.
#pragma once

#include <cstddef>

#include "nccl.h"

namespace weft::perf::device {

// Null when this build can drive the device the library uses, else the reason why not.
const char* unavailable();
// What "# Using devices" and the JSON file call it.
const char* name();

// Makes the device of a rank current: they are dealt out in turn. Before allocate(), stream() and
// the rank's init.
void select(int global_rank);
void* allocate(size_t bytes);
void release(void* memory);
// Memory that the library does not know, and other processes cannot reach; kept until the end.
void* allocate_plain(size_t bytes);
void copy_in(void* device, const void* host, size_t bytes);
void copy_out(void* host, const void* device, size_t bytes);
void fill(void* device, unsigned char value, size_t bytes);
// Waits for everything given to the stream so far.
void synchronize(cudaStream_t stream);
cudaStream_t stream(int local_rank, bool null_stream);
// Bytes that buffers of all local ranks together may take.
size_t memory_limit();

}  // namespace weft::perf::device
