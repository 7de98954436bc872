// Compiled when the build is set up, to see whether nvcc works here: with its host compiler, with
// C++20, and for every architecture asked for.
#include <concepts>

template <std::integral T>
__global__ void NvccCheck(T* value) {
  *value = T{1};
}

template __global__ void NvccCheck(int* value);
