// A checkpoint of random weights, to time a model of any size without its files.
//
// All matrices are views into one buffer of random numbers, all norms into another, and so on. A
// buffer has the address range of its largest tensor, but maps one period of 64 MiB repeatedly: a
// model of 28 GB takes at most 64 MiB for each kind of values. Values are small enough that
// activations stay in the range of f16.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl::weights {

enum class RandomValues : uint8_t {
  kNearZero,  // as of a matrix
  kNearOne,   // as of a norm
  kZeros,
  kOnes,
  kFirstInputs,  // [D, 2 D]: its product is the first half of what it multiplies
};

struct RandomTensor {
  std::string name;
  std::vector<int64_t> shape;
  RandomValues values = RandomValues::kNearZero;
};

// Values are a function of the tensors and the seed. At most one tensor is kFirstInputs.
// kBadInput for sizes that cannot be addressed, kOutOfMemory.
Result<std::unique_ptr<Checkpoint>> MakeRandomCheckpoint(const std::vector<RandomTensor>& tensors,
                                                         DType dtype, uint64_t seed);

// `num_bytes` of random numbers, uniform in center +- spread, read-only; freed with the last copy
// of the pointer.
Result<std::shared_ptr<const std::byte>> MakeRandomMemory(uint64_t num_bytes, DType dtype,
                                                          float center, float spread,
                                                          uint64_t seed);

}  // namespace minisgl::weights
