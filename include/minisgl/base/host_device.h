// Marks functions that run on the host and in CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define MINISGL_HOST_DEVICE __host__ __device__
#else
#define MINISGL_HOST_DEVICE
#endif
