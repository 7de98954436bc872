// Compiled at configure time to check that nvcc works: with its host compiler, with C++20, and for
// every requested architecture.
#include <concepts>

template <std::integral T>
__global__ void NvccCheck(T* value) {
  *value = T{1};
}

template __global__ void NvccCheck(int* value);
