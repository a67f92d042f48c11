// NVTX ranges around API calls, in the domain "NCCL". They are compiled in if the CUDA toolkit has
// NVTX's headers. Without a tool such as Nsight Systems they cost a branch. NCCL_NVTX_DISABLE=1
// turns them off.
#pragma once

namespace weft::api {

// A range named after the function, from construction to the end of the scope.
class NvtxRange {
 public:
#ifdef WEFT_HAVE_NVTX
  explicit NvtxRange(const char* function) noexcept;
  ~NvtxRange();
#else
  explicit NvtxRange(const char*) noexcept {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace weft::api
