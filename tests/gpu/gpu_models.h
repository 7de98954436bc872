// Models of the suite `gpu`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_driver.h"

namespace minisgl::cuda {

// A made-up model with a head size that the kernels support: 3 query heads on each of 2 KV heads of
// 64, two layers, a vocabulary of 97.
std::unique_ptr<TestModel> MakeGpuTinyModel(int32_t max_seq_len = 256);

// tests/models/wren of the sources, or of $MINISGL_MODELS if the test program was copied to another
// machine: a vocabulary of 2,048.
std::unique_ptr<TestModel> OpenWren();

// An architecture of tests/golden/models, or of tests/golden/pooling ("pooling/NAME"), with heads
// of 64 and random weights, otherwise with the configuration there, including odd widths. Null if
// the sources are not available.
std::unique_ptr<TestModel> MakeGpuArchitecture(const std::string& name);

// The batch sizes that graphs are captured for, and the numbers of tokens of other steps.
std::vector<int32_t> CapturedSizes(int32_t max_rows);
std::vector<int32_t> CapturedTokens(int32_t max_tokens);

}  // namespace minisgl::cuda
