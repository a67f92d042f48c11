/* What Weft offers beyond NCCL. Exported by the same libnccl.so.2. */
#ifndef WEFT_H_
#define WEFT_H_

#include "nccl.h"

#define WEFT_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "Weft 0.1.0, NCCL 2.28.9 contract". A program can look this symbol up to learn whose libnccl it
 * has. */
const char* weftVersion(void);

/* 1 when device buffers are plain host memory here (no GPU is used), else 0. */
int weftHostMode(void);

#ifdef __cplusplus
}
#endif

#endif
