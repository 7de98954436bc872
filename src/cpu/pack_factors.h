// The scales, zero points and offsets of matrices of codes (coded_matrix.h): the form in which they
// are packed, and writing them. For pack_codes.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/coded_matrix.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

// An output of a part.
struct CodedRow {
  const WeightTensor* part;
  int64_t out;
};
// Returns a panel's rows among all rows of a matrix.
std::span<const CodedRow> RowsOfPanel(std::span<const CodedRow> rows, int64_t panel);

// The group of the first input.
int64_t FirstGroup(const WeightTensor& part);

// Groups of a row of blocks whose scales are steps under one factor; 0: scales have no such steps.
int64_t BlockFactorGroups(const WeightTensor& part);

// Sets the steps and the type of scales and offsets. REQUIRES the other fields of `matrix`, but no
// data, for `rows`, which are all of `parts`.
void ChooseScaleForm(std::span<const WeightTensor> parts, std::span<const CodedRow> rows,
                     ThreadPool* pool, CodedMatrix* matrix);

// Where the scales of a panel, its zero points and its offsets are in the memory of a matrix, which
// `data` begins.
struct PanelFactors {
  PanelFactors(const CodedMatrix& matrix, int64_t panel, std::byte* data)
      : scales(data + matrix.num_panels() * matrix.panel_bytes() + panel * matrix.scale_bytes()),
        after_scales(data + matrix.num_panels() * (matrix.panel_bytes() + matrix.scale_bytes())),
        zeros(after_scales + panel * matrix.num_groups() * kPanelWidth),
        offsets(after_scales + panel * matrix.scale_bytes()) {}
  std::byte* const scales;
  std::byte* const after_scales;
  std::byte* const zeros;
  std::byte* const offsets;
};

// Writes the scales, zero points or offsets of output `lane` of a panel to the memory of `matrix`,
// which `data` begins.
void WriteFactors(const CodedRow& row, const CodedMatrix& matrix, int64_t panel, size_t lane,
                  std::byte* data);

}  // namespace minisgl::cpu
