/* Only dlopens the library, as vLLM does, and reduces over one rank. usage: dlopen_smoke
 * PATH/libnccl.so.2 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

static void* resolve(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "FAILED: %s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}

/* A pointer with the type of `function`, which is looked up, never linked. */
#define RESOLVE(function, variable)            \
  __typeof__(&function) variable;              \
  do {                                         \
    void* found = resolve(library, #function); \
    memcpy(&variable, &found, sizeof found);   \
  } while (0)

#define CHECK(call)                                                                           \
  do {                                                                                        \
    ncclResult_t result = (call);                                                             \
    if (result != ncclSuccess) {                                                              \
      fprintf(stderr, "FAILED: %s: %s, %s\n", #call, error_string(result), last_error(NULL)); \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "FAILED: %s\n",
            argc == 2 ? dlerror() : "usage: dlopen_smoke PATH/libnccl.so.2");
    return 1;
  }
  RESOLVE(ncclGetErrorString, error_string);
  RESOLVE(ncclGetLastError, last_error);
  RESOLVE(ncclGetVersion, get_version);
  RESOLVE(pncclGetVersion, twin_get_version);
  RESOLVE(ncclGetUniqueId, get_unique_id);
  RESOLVE(ncclCommInitRank, init_rank);
  RESOLVE(ncclAllReduce, all_reduce);
  RESOLVE(ncclCommDestroy, destroy);

  int version = 0;
  int twin = 0;
  CHECK(get_version(&version));
  CHECK(twin_get_version(&twin));
  printf("version %d\n", version);
  if (version != NCCL_VERSION_CODE || twin != version) {
    fprintf(stderr, "FAILED: version %d, pnccl twin %d, header %d\n", version, twin,
            NCCL_VERSION_CODE);
    return 1;
  }
  ncclUniqueId id;
  CHECK(get_unique_id(&id));
  ncclComm_t comm = NULL;
  CHECK(init_rank(&comm, 1, id, 0));
  float in[3] = {1.0f, 2.0f, 3.0f};
  float out[3] = {0};
  CHECK(all_reduce(in, out, 3, ncclFloat32, ncclSum, comm, NULL));
  if (memcmp(in, out, sizeof in) != 0) {
    fprintf(stderr, "FAILED: wrong result\n");
    return 1;
  }
  CHECK(destroy(comm));
  dlclose(library); /* threads of the library must be gone or keep it loaded */
  printf("OK\n");
  return 0;
}
