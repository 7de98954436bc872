// Made-up weights: a checkpoint for a configuration alone, so that a model of any size can be timed
// without its files.
//
// All matrices are views into one buffer of random numbers, all norms into another. A buffer is as
// large as its largest tensor in addresses, but holds one period of 64 MiB again and again: a model
// of 28 GB takes 128 MiB at most. Values are small enough that no activation grows past the range
// of f16; they mean nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl::weights {

struct RandomTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool is_norm = false;  // near 1, where others are near 0
};

// The same tensors and seed give the same values. kBadInput for sizes past what can be addressed,
// kOutOfMemory where there is no memory for the buffers.
Result<std::unique_ptr<Checkpoint>> MakeRandomCheckpoint(const std::vector<RandomTensor>& tensors,
                                                         DType dtype, uint64_t seed);

// `num_bytes` of such numbers, `spread` around `center` evenly, read-only; freed with the last
// copy.
Result<std::shared_ptr<const std::byte>> MakeRandomMemory(uint64_t num_bytes, DType dtype,
                                                          float center, float spread,
                                                          uint64_t seed);

}  // namespace minisgl::weights
