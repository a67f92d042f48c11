/* ncclMemAlloc with the interface of PyTorch's pluggable allocators. It links no library: the
 * process has a libnccl. */
#include <stddef.h>
#include <sys/types.h>

int ncclMemAlloc(void** pointer, size_t size);
int ncclMemFree(void* pointer);

void* pool_alloc(ssize_t size, int device, void* stream) {
  void* pointer = NULL;
  (void)device;
  (void)stream;
  return ncclMemAlloc(&pointer, (size_t)size) == 0 ? pointer : NULL;
}

void pool_free(void* pointer, ssize_t size, int device, void* stream) {
  (void)size;
  (void)device;
  (void)stream;
  ncclMemFree(pointer);
}
