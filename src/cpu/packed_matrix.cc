// See packed_matrix.h.
#include "cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/memory.h"
#include "cpu/pack_codes.h"
#include "cpu/transpose_words.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

// A row of a part: the weights of one output.
struct SourceRow {
  const WeightTensor* part;
  int64_t out;

  // The weights as they are stored, if they are neighbours of type `dtype`; may have any alignment.
  const std::byte* Dense(DType dtype) const {
    return part->dtype() == dtype ? part->DenseRow(out) : nullptr;
  }
};

uint16_t Load16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

float Widen(const std::byte* row, DType dtype, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + index * 4, sizeof(value));
    return value;
  }
  const uint16_t bits = Load16(row + index * 2);
  return dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
}

// Index of the weight of (input, lane) in a panel that is not quantized, in elements.
int64_t IndexInPanel(DType dtype, int64_t input, int64_t lane) {
  if (dtype == DType::kBF16) return (input / 2 * kPanelWidth + lane) * 2 + input % 2;
  return input * kPanelWidth + lane;
}

// Interleaves rows of words, one row for each lane: word 0 of all lanes, word 1 of all lanes, and
// so on. Takes 16 words of each row at a time, so that each cache line is read and written once.
template <typename Word>
void Interleave(std::span<const std::byte* const> rows, int64_t num_words, std::byte* panel) {
  Word tile[kTransposedWords][kPanelWidth] = {};
  for (int64_t first = 0; first < num_words; first += kTransposedWords) {
    const size_t offset = static_cast<size_t>(first) * sizeof(Word);
    const int64_t count = std::min(kTransposedWords, num_words - first);
    std::byte* const to = panel + offset * kPanelWidth;
    if (sizeof(Word) == sizeof(uint32_t) && count == kTransposedWords &&
        rows.size() == kTransposedWords) {
      TransposeWords(rows, offset, to);
      continue;
    }
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      Word words[kTransposedWords];
      std::memcpy(words, rows[lane] + offset, static_cast<size_t>(count) * sizeof(Word));
      for (int64_t i = 0; i < count; ++i) tile[i][lane] = words[i];
    }
    std::memcpy(to, tile, static_cast<size_t>(count * kPanelWidth) * sizeof(Word));
  }
}

void WriteRow(const float* row, int64_t lane, const PackedMatrix& matrix, std::byte* panel) {
  const DType dtype = matrix.format.dtype;
  for (int64_t i = 0; i < matrix.num_in; ++i) {
    const int64_t index = IndexInPanel(dtype, i, lane);
    if (dtype == DType::kF32) {
      std::memcpy(panel + index * 4, &row[i], 4);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? FloatToBf16(row[i]) : FloatToF16(row[i]);
      std::memcpy(panel + index * 2, &bits, 2);
    }
  }
}

// Writes the outputs `rows` of panel `index`. If the dtype stays the same, words are moved without
// conversion: bf16 by pairs of inputs, an odd last input by itself.
void PackPanel(std::span<const SourceRow> rows, int64_t index, PackedMatrix* matrix) {
  const DType dtype = matrix->format.dtype;
  std::byte* const panel = matrix->panel(index);
  std::vector<const std::byte*> dense;
  for (const SourceRow& row : rows) dense.push_back(row.Dense(dtype));
  const bool same = std::find(dense.begin(), dense.end(), nullptr) == dense.end();
  if (same && dtype == DType::kF32) return Interleave<uint32_t>(dense, matrix->num_in, panel);
  if (same && dtype == DType::kF16) return Interleave<uint16_t>(dense, matrix->num_in, panel);
  if (same) {
    Interleave<uint32_t>(dense, matrix->num_in / 2, panel);
    const int64_t last = matrix->num_in - 1;
    for (size_t lane = 0; lane < rows.size() && last % 2 == 0; ++lane) {
      std::memcpy(panel + IndexInPanel(dtype, last, static_cast<int64_t>(lane)) * 2,
                  dense[lane] + last * 2, 2);
    }
    return;
  }
  std::vector<float> row(matrix->num_in);
  for (size_t lane = 0; lane < rows.size(); ++lane) {
    rows[lane].part->ReadRow(rows[lane].out, row.data());
    WriteRow(row.data(), static_cast<int64_t>(lane), *matrix, panel);
  }
}

}  // namespace

size_t PackedMatrix::num_bytes() const {
  if (!stacked.empty()) {
    size_t sum = 0;
    for (const PackedMatrix& part : stacked) sum += part.num_bytes();
    return sum;
  }
  if (coded != nullptr) return coded->num_bytes();
  return static_cast<size_t>(num_panels() * panel_stride()) * DTypeBytes(format.dtype);
}

void PackedMatrix::ReadRow(int64_t out, float* row) const {
  for (const PackedMatrix& part : stacked) {
    if (out < part.num_out) return part.ReadRow(out, row);
    out -= part.num_out;
  }
  if (coded != nullptr) return coded->ReadRow(out, row);
  const int64_t index = out / kPanelWidth, lane = out % kPanelWidth;
  const std::byte* const source = panel(index);
  for (int64_t i = 0; i < num_in; ++i) {
    row[i] = Widen(source, format.dtype, IndexInPanel(format.dtype, i, lane));
  }
}

Result<PackedMatrix> PackParts(std::span<const WeightTensor> parts, const WeightFormat& format,
                               CodeOrders orders, Packing packing) {
  PackedMatrix matrix;
  matrix.format = format;
  matrix.num_in = parts[0].num_in();
  std::vector<SourceRow> rows;  // one for each output
  for (const WeightTensor& part : parts) {
    MINISGL_CHECK(part.num_in() == matrix.num_in, "a part of {} inputs in a matrix of {}",
                  part.num_in(), matrix.num_in);
    matrix.num_out += part.num_out();
    for (int64_t row = 0; row < part.num_out(); ++row) rows.push_back({&part, row});
  }
  if (QuantizesToCodes(format)) {
    MINISGL_ASSIGN_OR_RETURN(CodedMatrix coded, QuantizeToCodes(parts, format, orders, packing));
    matrix.coded = std::make_shared<const CodedMatrix>(std::move(coded));
    return matrix;
  }
  if (format.quantization == Quantization::kStored) {
    if (HaveCommonCodes(parts)) {
      MINISGL_ASSIGN_OR_RETURN(CodedMatrix coded, PackCodes(parts, orders, packing));
      matrix.coded = std::make_shared<const CodedMatrix>(std::move(coded));
      return matrix;
    }
    matrix.format.quantization = Quantization::kNone;
  }
  MINISGL_ASSIGN_OR_RETURN(matrix.data, AllocateToFill(matrix.num_bytes(), packing));
  packing.pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    const int64_t first = panel * kPanelWidth;
    const auto lanes = static_cast<size_t>(std::min(kPanelWidth, matrix.num_out - first));
    const auto of_panel = std::span(rows).subspan(static_cast<size_t>(first), lanes);
    PackPanel(of_panel, panel, &matrix);
  });
  return matrix;
}

}  // namespace minisgl::cpu
