// The boundary to C. Exceptions become ncclResult_t, and their texts are kept for ncclGetLastError.
// Every function exists twice, as ncclNAME and pncclNAME.
#pragma once

#include <exception>
#include <string>

#include "include/nccl.h"
#include "src/api/nvtx.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/group.h"

// Begins the definition of pncclNAME (strong). ncclNAME is its weak alias, as in NCCL.
#define WEFT_EXPORT(ret, NAME, params)                                                            \
  extern "C" [[gnu::visibility("default")]] ret pnccl##NAME params;                               \
  extern "C"                                                                                      \
      [[gnu::visibility("default"), gnu::weak, gnu::alias("pnccl" #NAME)]] ret nccl##NAME params; \
  ret pnccl##NAME params

namespace weft::api {

// The text of the calling thread's last error.
std::string& last_error();

ncclResult_t report(const char* function, ncclResult_t code, const char* text) noexcept;

// Runs `body`, which returns void or ncclResult_t. An exception becomes a result code.
template <typename Body>
ncclResult_t guard(const char* function, Body&& body) noexcept {
  const NvtxRange range(function);
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return ncclSuccess;
    } else {
      return body();
    }
  } catch (const Error& error) {
    return report(function, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(function, ncclSystemError, "out of memory");
  } catch (const std::exception& error) {
    return report(function, ncclInternalError, error.what());
  }
}

}  // namespace weft::api
