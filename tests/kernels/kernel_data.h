// Arrays of numbers for the tests of kernels: random values, and the types that a device stores.
// Compiled with optimisation, which the tests are not: these loops would take longer than the
// emulated kernels.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "minisgl/tensor/dtype.h"

namespace minisgl::cuda {

// Draws from a normal distribution around 0.
void FillNormal(std::span<float> values, std::mt19937_64* random);
std::vector<float> RandomFloats(int64_t count, uint64_t seed, double deviation = 1.0);

// Elements of `dtype`: f32, bf16 or f16. `array` has room for all values.
void StoreElements(void* array, DType dtype, std::span<const float> values);
std::vector<float> LoadElements(const void* array, DType dtype, int64_t count);
// The values as `dtype` rounds them.
std::vector<float> RoundedTo(DType dtype, std::vector<float> values);

}  // namespace minisgl::cuda
