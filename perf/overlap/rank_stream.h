// A stream of a rank: work in order, marks between it, and waits for marks of other streams. On
// GPUs a CUDA stream; in host mode a thread that takes work from a queue. One thread gives it work.
#pragma once

#include <functional>
#include <memory>

#include "nccl.h"

namespace weft::perf::overlap {

// A point in a stream.
class Mark {
 public:
  virtual ~Mark() = default;
  // After finish() of both streams.
  virtual double us_since(const Mark& earlier) const = 0;
};
using MarkPtr = std::shared_ptr<Mark>;

class RankStream {
 public:
  virtual ~RankStream() = default;
  virtual void compute(double us) = 0;  // keeps the stream busy for this long
  virtual void call(const std::function<void(cudaStream_t)>& collective) = 0;
  virtual MarkPtr mark() = 0;
  virtual void wait(const MarkPtr& mark) = 0;
  virtual void finish() = 0;  // returns when everything is done; throws what a call threw
};

// For the device that the library uses. Makes it current for the calling thread.
std::unique_ptr<RankStream> make_stream(int rank, bool urgent);
std::unique_ptr<RankStream> make_host_stream();

}  // namespace weft::perf::overlap
