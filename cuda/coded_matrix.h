// A matrix of codes in device memory: its storage in Matrix and ExpertMatrices, if their
// quantization is not kNone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/coded_rows.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/code_form.h"
#include "scaled_matrix.h"

namespace minisgl::cuda {

// Offsets in bytes of the arrays of `num_rows` rows of a form.
struct CodeLayout {
  size_t codes = 0, upper = 0, scales = 0, bases = 0, zeros = 0, offsets = 0, offset_bases = 0;
  size_t end = 0;

  // The arrays follow `begin`, each aligned as device memory is.
  static CodeLayout Make(const CodeForm& form, int64_t num_rows, int64_t num_in, size_t begin);
};

// Rows [first, first + count) of a matrix, all of one form.
struct CodedRun {
  int64_t first = 0, count = 0;
  CodeForm form;
  CodeLayout layout;
  CodedRows rows;  // row 0 is the run's first
};

struct CodedMatrix {
  int64_t num_out = 0, num_in = 0;  // of experts: rows of all
  std::vector<CodedRun> runs;       // from top to bottom
  size_t num_bytes = 0;
  std::shared_ptr<void> memory;  // on the device
  ScaledMatrix scaled;
};

// REQUIRES a quantization.
inline const CodedMatrix& CodesOf(const Matrix& matrix) {
  return *static_cast<const CodedMatrix*>(matrix.storage.get());
}
inline const CodedMatrix& CodesOf(const ExpertMatrices& matrices) {
  return *static_cast<const CodedMatrix*>(matrices.storage.get());
}

// What kernels read of a run whose arrays stand at `memory`.
CodedRows MakeCodedRows(const CodedRun& run, int64_t num_in, const CodeOrder& order,
                        const void* memory);

// Writes a row's codes, one a byte at `codes`, as lines to line_bytes[form.code_bytes] and, if they
// have 6 bits, upper[form.upper_bytes].
void WriteLines(const CodeForm& form, const CodeOrder& order, const uint8_t* codes, int64_t num_in,
                std::byte* lines, std::byte* upper);
// The inverse.
void ReadLines(const CodeForm& form, const CodeOrder& order, const std::byte* lines,
               const std::byte* upper, int64_t num_in, uint8_t* codes);

}  // namespace minisgl::cuda
