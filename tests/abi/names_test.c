/* Refers to every function of NCCL 2.30.7, and calls all that came since 2.29: each works, or
 * refuses with a text that begins with its name. Host mode. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "all_names.h"
#include "nccl_2_30.h"

static int failed;
static bool called[128]; /* by the place in new_names */

static void fail(const char* function, const char* what) {
  failed = 1;
  fprintf(stderr, "FAILED: %s: %s (last error: %s)\n", function, what, ncclGetLastError(NULL));
}

static void expect(bool holds, const char* function, const char* what) {
  for (int i = 0; new_names[i] != NULL; i++)
    if (strcmp(new_names[i], function) == 0) called[i] = true;
  if (!holds) fail(function, what);
}

static void expect_refusal(const char* function, ncclResult_t result, ncclResult_t code) {
  const char* text = ncclGetLastError(NULL);
  const size_t length = strlen(function);
  expect(result == code, function, "wrong result code");
  expect(strncmp(text, function, length) == 0 && strncmp(text + length, ": ", 2) == 0, function,
         "the text does not begin with the function's name");
  if (code == ncclInvalidUsage)
    expect(strstr(text, "Weft") != NULL, function, "the text does not name Weft");
}

/* A call that Weft does not have yet. */
#define REFUSES(function, ...) expect_refusal(#function, function(__VA_ARGS__), ncclInvalidUsage)
#define INVALID(function, ...) expect_refusal(#function, function(__VA_ARGS__), ncclInvalidArgument)
#define WORKS(function, ...) \
  expect(function(__VA_ARGS__) == ncclSuccess, #function, "does not succeed")

static void names_are_in_the_library(void) {
  Dl_info info;
  for (const struct name* each = all_names; each->text != NULL; each++) {
    void* address;
    memcpy(&address, &each->address, sizeof address);
    if (dladdr(address, &info) == 0 || strstr(info.dli_fname, "libnccl.so") == NULL)
      fail(each->text, "is not in libnccl.so");
  }
}

static void every_new_name_was_called(void) {
  for (int i = 0; new_names[i] != NULL; i++)
    if (!called[i]) fail(new_names[i], "this test does not call it");
}

static void refusals(ncclComm_t comm, ncclWindow_t window) {
  ncclUniqueId id;
  memset(&id, 1, sizeof id);
  ncclWaitSignalDesc_t signal = {1, 0, 0, 0};
  WORKS(ncclPutSignal, &id, 1, ncclInt8, 0, window, 0, 0, 0, 0, comm, NULL);
  WORKS(ncclSignal, 0, 0, 0, 0, comm, NULL);
  signal.opCnt = 2;
  WORKS(ncclWaitSignal, 1, &signal, comm, NULL);

  void* pointer = &id;
  MultimemHandle multimem = {&id};
  void* own = NULL;
  WORKS(ncclWinGetUserPtr, comm, window, &own);
  WORKS(ncclGetLsaDevicePointer, window, 4, 0, &pointer);
  expect(pointer == (char*)own + 4, "ncclGetLsaDevicePointer", "wrong pointer");
  INVALID(ncclGetLsaDevicePointer, window, 4, 1, &pointer);
  expect(pointer == NULL, "ncclGetLsaDevicePointer", "leaves a pointer");
  WORKS(ncclGetPeerDevicePointer, window, 0, 0, &pointer);
  expect(pointer == own, "ncclGetPeerDevicePointer", "wrong pointer");
  WORKS(ncclGetLsaMultimemDevicePointer, window, 0, &pointer);
  expect(pointer == NULL, "ncclGetLsaMultimemDevicePointer", "leaves a pointer");
  pointer = &id;
  INVALID(ncclGetMultimemDevicePointer, window, 0, multimem, &pointer);
  expect(pointer == NULL, "ncclGetMultimemDevicePointer", "leaves a pointer");
  Team team = {1, 0, 1};
  REFUSES(ncclGinInboxA2ACreateRequirement, team, 1, 7, &id, &id);
  REFUSES(ncclGinOutboxCreateRequirement, 1, 7, &id, &id);

  /* Also without a communicator, and without places for results. */
  INVALID(ncclGetPeerDevicePointer, NULL, 0, 0, NULL);
}

/* A call that is refused inside a group makes the group fail. */
static void refusals_in_groups(ncclComm_t comm) {
  ncclGroupStart();
  INVALID(ncclSignal, 1, 0, 0, 0, comm, NULL);
  expect(ncclGroupEnd() == ncclInvalidArgument, "ncclSignal", "the group does not fail");
}

static void properties(ncclComm_t comm) {
  Properties all;
  memset(&all, 0x55, sizeof all);
  all.size = sizeof all;
  all.magic = 0xcafebeef;
  all.version = 23007;
  WORKS(ncclCommQueryProperties, comm, &all);
  expect(all.rank == 0 && all.nRanks == 1 && all.cudaDev == 0 && all.nvmlDev == -1 &&
             !all.deviceApiSupport && !all.multimemSupport && all.ginType == 0 &&
             all.nLsaTeams == 1 && all.hostRmaSupport && all.railedGinType == 0,
         "ncclCommQueryProperties", "wrong properties");
  Properties old;
  memset(&old, 0x55, sizeof old);
  old.size = offsetof(Properties, nLsaTeams);
  old.magic = 0xcafebeef;
  old.version = 22902;
  WORKS(ncclCommQueryProperties, comm, &old);
  expect(old.ginType == 0 && old.nLsaTeams == 0x55555555, "ncclCommQueryProperties",
         "writes behind the struct of NCCL 2.29.2");
  old.size = 16;
  INVALID(ncclCommQueryProperties, comm, &old);
  INVALID(ncclCommQueryProperties, NULL, &all);
  INVALID(ncclCommQueryProperties, comm, NULL);
  all.magic = 0;
  expect(ncclCommQueryProperties(comm, &all) == ncclInvalidUsage, "ncclCommQueryProperties",
         "takes a struct without magic");
}

/* tests/comm has more of these. */
static void new_communicators(ncclComm_t comm) {
  ncclUniqueId id;
  ncclComm_t grown = comm;
  uint64_t bytes = 0;
  WORKS(ncclCommGetUniqueId, comm, &id);
  INVALID(ncclCommGrow, comm, 1, &id, -1, &grown, NULL);
  expect(grown == NULL, "ncclCommGrow", "leaves a communicator");
  WORKS(ncclCommSuspend, comm, NCCL_SUSPEND_MEM);
  WORKS(ncclCommMemStats, comm, ncclStatGpuMemSuspended, &bytes);
  expect(bytes == 1, "ncclCommMemStats", "is not suspended");
  WORKS(ncclCommResume, comm);
}

static void windows(ncclComm_t comm, ncclWindow_t window, void* buffer) {
  void* pointer = NULL;
  WORKS(ncclWinGetUserPtr, comm, window, &pointer);
  expect(pointer == buffer, "ncclWinGetUserPtr", "another pointer");
  INVALID(ncclWinGetUserPtr, comm, (ncclWindow_t)buffer, &pointer);
  expect(pointer == NULL, "ncclWinGetUserPtr", "leaves a pointer");
  INVALID(ncclWinGetUserPtr, comm, NULL, &pointer);
}

static int is_team(Team team, int nranks, int rank, int stride) {
  return team.nRanks == nranks && team.rank == rank && team.stride == stride;
}

/* Rank 5 of 12, in blocks of 4: {4, 5, 6, 7} and {1, 5, 9}. */
static void teams(void) {
  const Team world = {12, 5, 1};
  const Team inner = ncclTeamInnerFactor(world, 4);
  const Team outer = ncclTeamOuterFactor(world, 4);
  expect(is_team(inner, 4, 1, 1), "ncclTeamInnerFactor", "wrong team");
  expect(is_team(outer, 3, 1, 4), "ncclTeamOuterFactor", "wrong team");
  int rest = 0; /* of the world without the outer team */
  for (int rank = 0; rank < 12; rank++) {
    const bool in_inner = rank / 4 == 1;
    const bool in_outer = rank % 4 == 1;
    expect(ncclTeamRankIsMember(inner, world, rank) == in_inner &&
               ncclTeamRankIsMember(outer, world, rank) == in_outer,
           "ncclTeamRankIsMember", "wrong answer");
    if (in_inner)
      expect(ncclTeamRankToTeam(inner, world, rank) == rank - 4, "ncclTeamRankToTeam",
             "wrong rank");
    if (in_outer)
      expect(ncclTeamRankToTeam(outer, world, rank) == rank / 4, "ncclTeamRankToTeam",
             "wrong rank");
    else
      expect(ncclTeamRankInDifference(world, outer, rest++) == rank, "ncclTeamRankInDifference",
             "wrong rank");
  }
  for (int rank = 0; rank < 8; rank++)
    expect(ncclTeamRankInDifference(world, inner, rank) == (rank < 4 ? rank : rank + 4),
           "ncclTeamRankInDifference", "wrong rank");
  const Team none = {0, 0, 0};
  expect(!ncclTeamRankIsMember(none, world, 0) && is_team(ncclTeamInnerFactor(world, 0), 0, 0, 0) &&
             is_team(ncclTeamOuterFactor(world, 0), 0, 0, 0),
         "ncclTeamRankIsMember", "does not know an empty team");
  expect(ncclTeamRankToTeam(none, world, 0) == -1, "ncclTeamRankToTeam", "knows an empty team");
  expect(ncclGetResourceBufferOffset(0x80000001u) == 0x80000001ull * 128,
         "ncclGetResourceBufferOffset", "wrong offset");
}

#define GETS(suffix, type, handle, value)                              \
  do {                                                                 \
    type typed = 0;                                                    \
    WORKS(ncclParamGet##suffix, handle, &typed);                       \
    expect(typed == (value), "ncclParamGet" #suffix, "another value"); \
    INVALID(ncclParamGet##suffix, NULL, &typed);                       \
    INVALID(ncclParamGet##suffix, handle, NULL);                       \
    INVALID(ncclParamGet##suffix, (ncclParamHandle_t)&typed, &typed);  \
  } while (0)

static void typed_parameters(void) {
  setenv("NCCL_MAX_CTAS", "17", 1);
  setenv("NCCL_HOSTID", "box", 1);
  ncclParamHandle_t number = NULL;
  ncclParamHandle_t text = NULL;
  WORKS(ncclParamBind, &number, "NCCL_MAX_CTAS");
  WORKS(ncclParamBind, &text, "NCCL_HOSTID");
  GETS(I8, int8_t, number, 17);
  GETS(I16, int16_t, number, 17);
  GETS(I32, int32_t, number, 17);
  GETS(I64, int64_t, number, 17);
  GETS(U8, uint8_t, number, 17);
  GETS(U16, uint16_t, number, 17);
  GETS(U32, uint32_t, number, 17);
  GETS(U64, uint64_t, number, 17);
  const char* words = NULL;
  WORKS(ncclParamGetStr, text, &words);
  expect(words != NULL && strcmp(words, "box") == 0, "ncclParamGetStr", "another text");
  int64_t value = 0;
  int length = 0;
  WORKS(ncclParamGet, number, &value, (int)sizeof value, &length);
  expect(value == 17 && length == 8, "ncclParamGet", "another value");
  char space[4] = "";
  WORKS(ncclParamGet, text, space, (int)sizeof space, &length);
  expect(strcmp(space, "box") == 0 && length == 4, "ncclParamGet", "another text");
  INVALID(ncclParamGet, text, space, 3, &length);
  expect(length == 0, "ncclParamGet", "leaves a length");

  /* A text is no number, and a number must fit. */
  int8_t small = 0;
  INVALID(ncclParamGetI64, text, &value);
  setenv("NCCL_MAX_CTAS", "300", 1);
  INVALID(ncclParamGetI8, number, &small);
  unsetenv("NCCL_MAX_CTAS");
  unsetenv("NCCL_HOSTID");
  INVALID(ncclParamBind, &number, "NCCL_NO_SUCH_THING");
  expect(number == NULL, "ncclParamBind", "leaves a handle");
  INVALID(ncclParamBind, NULL, "NCCL_DEBUG");
}

static void parameters(void) {
  setenv("WEFT_TIMEOUT", "7.5", 1);
  const char* value = NULL;
  int length = 0;
  WORKS(ncclParamGetParameter, "WEFT_TIMEOUT", &value, &length);
  expect(value != NULL && strcmp(value, "7.5") == 0 && length == 3, "ncclParamGetParameter",
         "another value");
  INVALID(ncclParamGetParameter, "NCCL_NO_SUCH_THING", &value, &length);
  expect(value == NULL && length == 0, "ncclParamGetParameter", "leaves a value");

  const char** keys = NULL;
  bool found = false;
  WORKS(ncclParamGetAllParameterKeys, &keys, &length);
  for (int i = 0; i < length; i++) found |= strcmp(keys[i], "NCCL_DEBUG") == 0;
  expect(found, "ncclParamGetAllParameterKeys", "does not list NCCL_DEBUG");
  INVALID(ncclParamGetAllParameterKeys, NULL, &length);
}

/* It writes to stdout, a variable a line. */
static void dump(void) {
  FILE* file = tmpfile();
  const int out = dup(STDOUT_FILENO);
  if (file == NULL || out < 0 || dup2(fileno(file), STDOUT_FILENO) < 0) {
    perror("FAILED: cannot redirect stdout");
    exit(1);
  }
  ncclParamDumpAll();
  dup2(out, STDOUT_FILENO);
  close(out);
  rewind(file);
  char line[4096];
  bool found = false;
  while (fgets(line, sizeof line, file) != NULL) found |= strcmp(line, "WEFT_TIMEOUT=7.5\n") == 0;
  fclose(file);
  expect(found, "ncclParamDumpAll", "does not print WEFT_TIMEOUT=7.5");
}

int main(void) {
  names_are_in_the_library();
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  ncclWindow_t window = NULL;
  void* buffer = NULL;
  if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess ||
      ncclMemAlloc(&buffer, 4096) != ncclSuccess ||
      ncclCommWindowRegister(comm, buffer, 4096, &window, NCCL_WIN_COLL_SYMMETRIC) != ncclSuccess) {
    fprintf(stderr, "FAILED: no communicator: %s\n", ncclGetLastError(NULL));
    return 1;
  }
  refusals(comm, window);
  refusals_in_groups(comm);
  properties(comm);
  new_communicators(comm);
  windows(comm, window, buffer);
  teams();
  parameters();
  typed_parameters();
  dump();
  every_new_name_was_called();
  ncclCommWindowDeregister(comm, window);
  ncclMemFree(buffer);
  ncclCommDestroy(comm);
  if (!failed) printf("OK\n");
  return failed;
}
