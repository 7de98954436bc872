// See kernel_data.h.
#include "kernels/kernel_data.h"

#include <algorithm>
#include <utility>

namespace minisgl::cuda {

void FillNormal(std::span<float> values, std::mt19937_64* random) {
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(*random);
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed, double deviation) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(normal(random));
  return values;
}

void StoreElements(void* array, DType dtype, std::span<const float> values) {
  if (dtype == DType::kF32) {
    std::copy(values.begin(), values.end(), static_cast<float*>(array));
  } else if (dtype == DType::kBF16) {
    std::transform(values.begin(), values.end(), static_cast<uint16_t*>(array), FloatToBf16);
  } else {
    std::transform(values.begin(), values.end(), static_cast<uint16_t*>(array), FloatToF16);
  }
}

std::vector<float> LoadElements(const void* array, DType dtype, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const auto* const halves = static_cast<const uint16_t*>(array);
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(array), count, values.begin());
  } else if (dtype == DType::kBF16) {
    std::transform(halves, halves + count, values.begin(), Bf16ToFloat);
  } else {
    std::transform(halves, halves + count, values.begin(), F16ToFloat);
  }
  return values;
}

std::vector<float> RoundedTo(DType dtype, std::vector<float> values) {
  std::vector<float> stored(values.size());  // as large as any type
  StoreElements(stored.data(), dtype, values);
  return LoadElements(stored.data(), dtype, std::ssize(values));
}

}  // namespace minisgl::cuda
