// For code that nvcc and the host compiler both compile.
#pragma once

#ifdef __CUDACC__
#define WEFT_HD __host__ __device__
#else
#define WEFT_HD
#endif
