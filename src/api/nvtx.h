// NVTX ranges around API calls, in the domain "NCCL", where the CUDA toolkit has NVTX's headers.
// They cost a branch unless a tool such as Nsight Systems is there. NCCL_NVTX_DISABLE=1 turns them
// off.
#pragma once

namespace weft::api {

// From its making until the end of the scope, named after the function.
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
