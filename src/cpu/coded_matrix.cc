// See coded_matrix.h.
#include "cpu/coded_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "cpu/memory.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

// Inputs of a word of 4-bit codes.
constexpr int64_t kWordInputs = 8;
// Turns an unsigned code into one of two's complement that is 128 less.
constexpr uint8_t kSignFlip = 0x80;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

CodeKind KindOf(const QuantizedWeights& weights) {
  if (weights.codes.bits == 4) {
    return weights.numbers == E2M1Numbers() ? CodeKind::kSigned4 : CodeKind::kCounting4;
  }
  return weights.numbers == E4M3Numbers() ? CodeKind::kE4M3 : CodeKind::kInt8;
}

int64_t GroupInputs(const WeightTensor& part) {
  return std::min(part.quantized()->group_inputs, part.num_in());
}

// An output of a part.
struct CodedRow {
  const WeightTensor* part;
  int64_t out;
};

std::vector<CodedRow> RowsOf(std::span<const WeightTensor> parts) {
  std::vector<CodedRow> rows;
  for (const WeightTensor& part : parts) {
    for (int64_t out = 0; out < part.num_out(); ++out) rows.push_back({&part, out});
  }
  return rows;
}

std::span<const CodedRow> RowsOfPanel(std::span<const CodedRow> rows, int64_t panel) {
  const auto begin = static_cast<size_t>(panel * kPanelWidth);
  return rows.subspan(begin, std::min(static_cast<size_t>(kPanelWidth), rows.size() - begin));
}

// Writes the codes of a row to words of the panel at `to`.
void WriteWords(std::span<const uint8_t> codes, size_t lane, std::byte* to) {
  for (size_t first = 0; first < codes.size(); first += kWordInputs) {
    uint32_t word = 0;
    for (size_t i = first; i < std::min(codes.size(), first + kWordInputs); ++i) {
      word |= static_cast<uint32_t>(codes[i]) << 4 * (i - first);
    }
    std::memcpy(to + (first / kWordInputs * kPanelWidth + lane) * sizeof(word), &word,
                sizeof(word));
  }
}

// Packs one panel into the memory of `matrix`, which `data` begins.
class PanelWriter {
 public:
  PanelWriter(const CodedMatrix& matrix, std::byte* data) : matrix_(matrix), data_(data) {}

  void Write(std::span<const CodedRow> rows, int64_t panel) {
    std::vector<uint8_t> codes(static_cast<size_t>(matrix_.num_in));
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      rows[lane].part->ReadCodes(rows[lane].out, codes.data());
      WriteCodes(rows[lane], panel, lane, codes);
      WriteGroups(rows[lane], panel, lane);
    }
  }

 private:
  std::byte* At(const void* place) const {
    return data_ + (static_cast<const std::byte*>(place) -
                    static_cast<const std::byte*>(matrix_.data.get()));
  }

  void WriteCodes(const CodedRow& row, int64_t panel, size_t lane,
                  const std::vector<uint8_t>& codes) const {
    std::byte* const to = At(matrix_.codes(panel));
    if (matrix_.has_4_bits()) return WriteWords(codes, lane, to);
    const uint8_t flip =
        row.part->quantized()->numbers == SignedNumbers() || matrix_.kind == CodeKind::kE4M3
            ? 0
            : kSignFlip;
    for (size_t i = 0; i < codes.size(); ++i) {
      to[i * kPanelWidth + lane] = static_cast<std::byte>(codes[i] ^ flip);
    }
  }

  void WriteGroups(const CodedRow& row, int64_t panel, size_t lane) const {
    const QuantizedWeights& weights = *row.part->quantized();
    // The numbers of unsigned codes are 128 less.
    const float shift =
        weights.numbers == UnsignedNumbers() && matrix_.kind == CodeKind::kInt8 ? 128.0f : 0.0f;
    for (int64_t group = 0; group < matrix_.num_groups(); ++group) {
      const auto at = static_cast<size_t>(group * kPanelWidth) + lane;
      const float scale = row.part->ScaleOf(row.out, group);
      if (matrix_.scale_type == DType::kF32) {
        std::memcpy(At(matrix_.scales(panel)) + at * sizeof(scale), &scale, sizeof(scale));
      } else {
        const uint16_t bits = FloatToBf16(scale);
        std::memcpy(At(matrix_.scales(panel)) + at * sizeof(bits), &bits, sizeof(bits));
      }
      if (!matrix_.has_zeros) continue;
      const float zero = row.part->ZeroOf(row.out, group) - shift;
      At(matrix_.zeros(panel))[at] = static_cast<std::byte>(static_cast<int8_t>(zero));
    }
  }

  const CodedMatrix& matrix_;
  std::byte* const data_;
};

// Quantizes row `lane` of a panel to its codes and scales.
void QuantizeRow(const CodedRow& row, const CodedMatrix& matrix, size_t lane, std::byte* to_codes,
                 std::byte* to_scales) {
  std::vector<float> weights(static_cast<size_t>(matrix.num_in));
  std::vector<uint8_t> codes(weights.size());
  row.part->ReadRow(row.out, weights.data());
  for (int64_t group = 0; group < matrix.num_groups(); ++group) {
    const int64_t first = group * matrix.group_inputs;
    const int64_t count = std::min(matrix.group_inputs, matrix.num_in - first);
    int8_t q[kQuantBlock];
    const uint16_t scale = tensor::QuantizeWeightsInt4(weights.data() + first, count, q);
    for (int64_t i = 0; i < count; ++i) codes[first + i] = static_cast<uint8_t>(q[i] + 8);
    const size_t at = static_cast<size_t>(group * kPanelWidth) + lane;
    std::memcpy(to_scales + at * sizeof(scale), &scale, sizeof(scale));
  }
  WriteWords(codes, lane, to_codes);
}

bool AreScalesBf16(std::span<const CodedRow> rows, int64_t num_groups) {
  return std::all_of(rows.begin(), rows.end(), [&](const CodedRow& row) {
    for (int64_t group = 0; group < num_groups; ++group) {
      const float scale = row.part->ScaleOf(row.out, group);
      if (Bf16ToFloat(FloatToBf16(scale)) != scale) return false;
    }
    return true;
  });
}

}  // namespace

int64_t CodedMatrix::panel_bytes() const {
  if (!has_4_bits()) return num_in * kPanelWidth;
  return CeilDiv(num_in, kWordInputs) * kPanelWidth * static_cast<int64_t>(sizeof(uint32_t));
}

int64_t CodedMatrix::scale_bytes() const {
  return num_groups() * kPanelWidth * static_cast<int64_t>(DTypeBytes(scale_type));
}

size_t CodedMatrix::num_bytes() const {
  const int64_t zero_bytes = has_zeros ? num_groups() * kPanelWidth : 0;
  return static_cast<size_t>(num_panels() * (panel_bytes() + scale_bytes() + zero_bytes));
}

const int8_t* CodedMatrix::zeros(int64_t panel) const {
  if (!has_zeros) return nullptr;
  return reinterpret_cast<const int8_t*>(scales(num_panels())) + panel * num_groups() * kPanelWidth;
}

void CodedMatrix::ReadRow(int64_t out, float* row) const {
  const int64_t panel = out / kPanelWidth, lane = out % kPanelWidth;
  const std::byte* const from = codes(panel);
  for (int64_t i = 0; i < num_in; ++i) {
    float number = 0;
    if (has_4_bits()) {
      const int64_t word = i / kWordInputs * kPanelWidth + lane, k = i % kWordInputs;
      const auto pair = static_cast<uint8_t>(from[word * 4 + k / 2]);
      number = numbers[static_cast<size_t>(pair >> k % 2 * 4 & 0xF)];
    } else {
      const auto code = static_cast<uint8_t>(from[i * kPanelWidth + lane]);
      number = kind == CodeKind::kE4M3 ? E4M3ToFloat(code) : SignedNumbers()[code];
    }
    const int64_t at = i / group_inputs * kPanelWidth + lane;
    const std::byte* const scale =
        scales(panel) + at * static_cast<int64_t>(DTypeBytes(scale_type));
    const float zero = has_zeros ? zeros(panel)[at] : 0.0f;
    row[i] = (number - zero) *
             (scale_type == DType::kF32 ? Load<float>(scale) : Bf16ToFloat(Load<uint16_t>(scale)));
  }
}

bool HaveCommonCodes(std::span<const WeightTensor> parts) {
  for (const WeightTensor& part : parts) {
    if (part.quantized() == nullptr || part.quantized()->group_index != nullptr ||
        part.first_input() != 0) {
      return false;
    }
    // A word has codes of one group.
    const int64_t group = GroupInputs(part);
    if (group != GroupInputs(parts[0]) || (group % kWordInputs != 0 && group != part.num_in())) {
      return false;
    }
    const QuantizedWeights &its = *part.quantized(), &first = *parts[0].quantized();
    if (KindOf(its) != KindOf(first)) return false;
    if (its.codes.bits == 4 && its.numbers != first.numbers) return false;
  }
  return true;
}

Result<CodedMatrix> PackCodes(std::span<const WeightTensor> parts, ThreadPool* pool) {
  const QuantizedWeights& first = *parts[0].quantized();
  CodedMatrix matrix;
  matrix.num_in = parts[0].num_in();
  matrix.kind = KindOf(first);
  if (matrix.has_4_bits()) std::copy_n(first.numbers, 16, matrix.numbers.begin());
  matrix.group_inputs = GroupInputs(parts[0]);
  for (const WeightTensor& part : parts) {
    const QuantizedWeights& weights = *part.quantized();
    matrix.num_out += part.num_out();
    // Unsigned bytes are stored 128 less.
    matrix.has_zeros |= weights.zeros.data != nullptr ||
                        (matrix.kind == CodeKind::kInt8 && weights.numbers == UnsignedNumbers());
  }
  const std::vector<CodedRow> rows = RowsOf(parts);
  const auto rows_of = [&](int64_t panel) { return RowsOfPanel(rows, panel); };
  std::atomic<bool> are_bf16 = true;
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    if (!AreScalesBf16(rows_of(panel), matrix.num_groups())) are_bf16 = false;
  });
  matrix.scale_type = are_bf16 ? DType::kBF16 : DType::kF32;
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> data, AllocateZeroed(matrix.num_bytes()));
  matrix.data = data;
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    PanelWriter(matrix, static_cast<std::byte*>(data.get())).Write(rows_of(panel), panel);
  });
  return matrix;
}

CodedMatrix EmptyInt4Matrix(int64_t num_out, int64_t num_in) {
  CodedMatrix matrix;
  matrix.num_out = num_out;
  matrix.num_in = num_in;
  std::copy_n(OffsetNumbers(4), matrix.numbers.size(), matrix.numbers.begin());
  matrix.group_inputs = std::min(kQuantBlock, num_in);
  matrix.scale_type = DType::kBF16;
  return matrix;
}

Result<CodedMatrix> QuantizeToInt4(std::span<const WeightTensor> parts, ThreadPool* pool) {
  const std::vector<CodedRow> rows = RowsOf(parts);
  CodedMatrix matrix = EmptyInt4Matrix(std::ssize(rows), parts[0].num_in());
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> data, AllocateZeroed(matrix.num_bytes()));
  matrix.data = data;
  auto* const bytes = static_cast<std::byte*>(data.get());
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    std::byte* const codes = bytes + panel * matrix.panel_bytes();
    std::byte* const scales =
        bytes + matrix.num_panels() * matrix.panel_bytes() + panel * matrix.scale_bytes();
    const std::span<const CodedRow> of_panel = RowsOfPanel(rows, panel);
    for (size_t lane = 0; lane < of_panel.size(); ++lane) {
      QuantizeRow(of_panel[lane], matrix, lane, codes, scales);
    }
  });
  return matrix;
}

}  // namespace minisgl::cpu
