/* Only dlopens the library and does what PyTorch 2.12 and 2.13 do with it, as a program built
 * against NCCL 2.29.7: all names that the library should have resolve, a communicator is made with
 * that version's config, used, split, suspended and resumed.
 * usage: torch_client PATH/libnccl.so.2 LIST_OF_FUNCTIONS */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

/* ncclConfig_t of NCCL 2.29.7. */
struct config_of_2_29_7 {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* comm_name;
  int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer;
  int nvlink_centric, graph_usage, rma_contexts;
};

static void* library;

static void* resolve(const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "FAILED: %s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}

#define RESOLVE(function)                        \
  __typeof__(&function) p_##function;            \
  do {                                           \
    void* found = resolve(#function);            \
    memcpy(&p_##function, &found, sizeof found); \
  } while (0)

#define CHECK(expression)                           \
  do {                                              \
    if (!(expression)) {                            \
      fprintf(stderr, "FAILED: %s\n", #expression); \
      return 1;                                     \
    }                                               \
  } while (0)

/* Returns how many functions were found. */
static int resolve_all(const char* list) {
  FILE* file = fopen(list, "r");
  char line[256];
  int found = 0;
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '\0' || line[0] == '#') continue;
    resolve(line);
    found++;
  }
  fclose(file);
  return found;
}

static int use(void) {
  RESOLVE(ncclGetVersion);
  RESOLVE(ncclGetUniqueId);
  RESOLVE(ncclCommInitRankConfig);
  RESOLVE(ncclAllReduce);
  RESOLVE(ncclCommSplit);
  RESOLVE(ncclCommSuspend);
  RESOLVE(ncclCommResume);
  RESOLVE(ncclCommMemStats);
  RESOLVE(ncclCommGetAsyncError);
  RESOLVE(ncclCommDestroy);
  int version = 0;
  CHECK(p_ncclGetVersion(&version) == ncclSuccess && version >= 22907);
  struct config_of_2_29_7 config = {sizeof config, 0xcafebeef, 22907,   1,       INT_MIN,
                                    INT_MIN,       INT_MIN,    NULL,    INT_MIN, INT_MIN,
                                    "default",     INT_MIN,    INT_MIN, INT_MIN, INT_MIN,
                                    INT_MIN,       INT_MIN,    INT_MIN, INT_MIN};
  CHECK(sizeof config == 88);
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  ncclComm_t half = NULL;
  float x = 3;
  uint64_t suspended = 0;
  ncclResult_t state = ncclInProgress;
  CHECK(p_ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(p_ncclCommInitRankConfig(&comm, 1, id, 0, (ncclConfig_t*)&config) == ncclSuccess);
  CHECK(p_ncclCommSplit(comm, 0, 0, &half, (ncclConfig_t*)&config) == ncclSuccess);
  CHECK(p_ncclCommSuspend(comm, NCCL_SUSPEND_MEM) == ncclSuccess);
  CHECK(p_ncclCommMemStats(comm, ncclStatGpuMemSuspended, &suspended) == ncclSuccess);
  CHECK(suspended == 1);
  CHECK(p_ncclCommResume(comm) == ncclSuccess);
  CHECK(p_ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess);
  CHECK(p_ncclAllReduce(&x, &x, 1, ncclFloat32, ncclAvg, comm, NULL) == ncclSuccess && x == 3);
  CHECK(p_ncclCommDestroy(half) == ncclSuccess && p_ncclCommDestroy(comm) == ncclSuccess);
  return 0;
}

int main(int argc, char** argv) {
  library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "FAILED: %s\n", argc == 3 ? dlerror() : "usage: torch_client LIBRARY LIST");
    return 1;
  }
  const int found = resolve_all(argv[2]);
  CHECK(found > 80);
  if (use() != 0) return 1;
  printf("OK: %d functions\n", found);
  return 0;
}
