// Models of the suite `gpu`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_driver.h"

namespace minisgl {

// Made up, of a head size that the kernels have: 3 query heads on each of 2 KV heads of 64, two
// layers, a vocabulary of 97.
std::unique_ptr<TestModel> MakeGpuTinyModel(int32_t max_seq_len = 256);

// tests/models/wren of the sources, or of $MINISGL_MODELS where a test program was carried to
// another machine: a vocabulary of 2,048.
std::unique_ptr<TestModel> OpenWren();

// An architecture of tests/golden/models with heads of 64, random weights, and else as its
// configuration there has it, odd widths too. Null where the sources are not at hand.
std::unique_ptr<TestModel> MakeGpuArchitecture(const std::string& name);

// The batch sizes that graphs are captured for.
std::vector<int32_t> CapturedSizes(int32_t max_rows);

}  // namespace minisgl
