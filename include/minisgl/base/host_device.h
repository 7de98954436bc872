// Marks functions that kernels call too.
#pragma once

#ifdef __CUDACC__
#define MINISGL_HOST_DEVICE __host__ __device__
#else
#define MINISGL_HOST_DEVICE
#endif
