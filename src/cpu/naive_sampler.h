// The oracle of sampling: the rules of sampler.h as plain steps, with a full sort.
#pragma once

#include "cpu/sampler.h"

namespace minisgl::cpu {

// As Sampler::SampleRow, bit for bit.
void NaiveSampleRow(const SampleRowParams& row, RowResult* result);

}  // namespace minisgl::cpu
