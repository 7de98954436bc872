// Where a matrix of codes (coded_matrix.h) has its scales, zeros and offsets: computed once,
// because kernels read those of a few inputs at a time. Refers to the matrix's data, which it does
// not keep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/coded_matrix.h"

namespace minisgl::cpu {

struct FactorLayout {
  explicit FactorLayout(const CodedMatrix& m);

  bool HasSteps() const { return steps != ScaleSteps::kNone; }
  const std::byte* scales_of(int64_t panel) const { return scales + panel * panel_bytes; }
  // REQUIRES that there are some.
  const std::byte* offsets_of(int64_t panel) const { return offsets + panel * panel_bytes; }
  const int8_t* zeros_of(int64_t panel) const { return zeros + panel * panel_zeros; }

  const std::byte* scales;
  const std::byte* offsets;  // null: there are none
  const int8_t* zeros;       // likewise
  int64_t panel_bytes;       // of a panel's scales, or offsets
  int64_t panel_zeros;
  // Layout of a panel's scales or offsets:
  DType type;
  ScaleSteps steps;
  int shift = 0;       // log2 of CodedMatrix::factor_groups
  int64_t step_bytes;  // before the factors
};

}  // namespace minisgl::cpu
