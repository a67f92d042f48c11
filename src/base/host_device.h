// WEFT_HD marks functions that run on the host and on GPUs. Both compilers see it.
#pragma once

#ifdef __CUDACC__
#define WEFT_HD __host__ __device__
#else
#define WEFT_HD
#endif
