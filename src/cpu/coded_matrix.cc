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

// The place of an input's code in a line of 4 bits.
struct NibblePlace {
  explicit NibblePlace(int64_t input)
      : byte(input % kLineWords * 2 + input % kLineInputs / (2 * kLineWords)),
        shift(input / kLineWords % 2 * 4) {}
  static constexpr int64_t kLineWords = kLineInputs / 4;
  int64_t byte;
  int64_t shift;
};

// Writes codes to `data`, the memory of a matrix that has none yet.
class CodeWriter {
 public:
  CodeWriter(const CodedMatrix& matrix, std::byte* data) : matrix_(matrix), data_(data) {}

  void Write(std::span<const uint8_t> codes, int64_t out) const {
    const int64_t panel = out / kPanelWidth;
    const auto lane = static_cast<size_t>(out % kPanelWidth);
    if (matrix_.order == CodeOrder::kLines) return WriteLines(codes, out);
    std::byte* const to = data_ + panel * matrix_.panel_bytes();
    if (matrix_.has_4_bits()) return WriteWords(codes, lane, to);
    for (size_t i = 0; i < codes.size(); ++i) {
      to[i * kPanelWidth + lane] = static_cast<std::byte>(codes[i]);
    }
  }

  std::byte* ScalesOf(int64_t panel) const {
    return data_ + matrix_.num_panels() * matrix_.panel_bytes() + panel * matrix_.scale_bytes();
  }
  std::byte* ZerosOf(int64_t panel) const {
    return ScalesOf(matrix_.num_panels()) + panel * matrix_.num_groups() * kPanelWidth;
  }

 private:
  void WriteLines(std::span<const uint8_t> codes, int64_t out) const {
    for (int64_t first = 0; first < std::ssize(codes); first += kLineInputs) {
      std::byte* const line = data_ + matrix_.LineOffset(out, first / kLineInputs);
      const int64_t end = std::min(first + kLineInputs, std::ssize(codes));
      for (int64_t i = first; i < end; ++i) {
        const auto code = static_cast<std::byte>(codes[static_cast<size_t>(i)]);
        if (!matrix_.has_4_bits()) {
          line[i - first] = code;
          continue;
        }
        const NibblePlace place(i);
        line[place.byte] |= code << static_cast<int>(place.shift);
      }
    }
  }

  const CodedMatrix& matrix_;
  std::byte* const data_;
};

// Packs one panel into the memory of `matrix`, which `data` begins.
class PanelWriter {
 public:
  PanelWriter(const CodedMatrix& matrix, std::byte* data) : matrix_(matrix), to_(matrix, data) {}

  void Write(std::span<const CodedRow> rows, int64_t panel) const {
    std::vector<uint8_t> codes(static_cast<size_t>(matrix_.num_in));
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      const CodedRow& row = rows[lane];
      row.part->ReadCodes(row.out, codes.data());
      if (matrix_.kind == CodeKind::kInt8 && row.part->quantized()->numbers != SignedNumbers()) {
        for (uint8_t& code : codes) code ^= kSignFlip;
      }
      to_.Write(codes, panel * kPanelWidth + static_cast<int64_t>(lane));
      WriteGroups(row, panel, lane);
    }
  }

 private:
  void WriteGroups(const CodedRow& row, int64_t panel, size_t lane) const {
    // The numbers of unsigned codes are 128 less.
    const bool is_unsigned =
        matrix_.kind == CodeKind::kInt8 && row.part->quantized()->numbers == UnsignedNumbers();
    const float shift = is_unsigned ? 128.0f : 0.0f;
    for (int64_t group = 0; group < matrix_.num_groups(); ++group) {
      const auto at = static_cast<size_t>(group * kPanelWidth) + lane;
      const float scale = row.part->ScaleOf(row.out, group);
      if (matrix_.scale_type == DType::kF32) {
        std::memcpy(to_.ScalesOf(panel) + at * sizeof(scale), &scale, sizeof(scale));
      } else {
        const uint16_t bits = FloatToBf16(scale);
        std::memcpy(to_.ScalesOf(panel) + at * sizeof(bits), &bits, sizeof(bits));
      }
      if (!matrix_.has_zeros) continue;
      const float zero = row.part->ZeroOf(row.out, group) - shift;
      to_.ZerosOf(panel)[at] = static_cast<std::byte>(static_cast<int8_t>(zero));
    }
  }

  const CodedMatrix& matrix_;
  const CodeWriter to_;
};

// Quantizes row `lane` of a panel to its codes and scales.
void QuantizeRow(const CodedRow& row, const CodedMatrix& matrix, int64_t panel, size_t lane,
                 const CodeWriter& to) {
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
    std::memcpy(to.ScalesOf(panel) + at * sizeof(scale), &scale, sizeof(scale));
  }
  to.Write(codes, panel * kPanelWidth + static_cast<int64_t>(lane));
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
  if (order == CodeOrder::kLines) return CeilDiv(num_in, kLineInputs) * kPanelWidth * line_bytes();
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

int64_t CodedMatrix::LineOffset(int64_t out, int64_t index) const {
  const int64_t first_panel = out / (kLinePanels * kPanelWidth) * kLinePanels;
  const int64_t width = std::min(kLinePanels, num_panels() - first_panel) * kPanelWidth;
  return first_panel * panel_bytes() +
         (index * width + out - first_panel * kPanelWidth) * line_bytes();
}

uint8_t CodedMatrix::CodeAt(int64_t out, int64_t input) const {
  if (order == CodeOrder::kLines) {
    const std::byte* const from = line(out, input / kLineInputs);
    if (!has_4_bits()) return static_cast<uint8_t>(from[input % kLineInputs]);
    const NibblePlace place(input);
    return static_cast<uint8_t>(from[place.byte]) >> place.shift & 0xF;
  }
  const std::byte* const from = codes(out / kPanelWidth);
  const int64_t lane = out % kPanelWidth;
  if (!has_4_bits()) return static_cast<uint8_t>(from[input * kPanelWidth + lane]);
  const int64_t word = input / kWordInputs * kPanelWidth + lane, k = input % kWordInputs;
  return static_cast<uint8_t>(from[word * 4 + k / 2]) >> k % 2 * 4 & 0xF;
}

void CodedMatrix::ReadRow(int64_t out, float* row) const {
  const int64_t panel = out / kPanelWidth, lane = out % kPanelWidth;
  for (int64_t i = 0; i < num_in; ++i) {
    const uint8_t code = CodeAt(out, i);
    const float number = has_4_bits()              ? numbers[code]
                         : kind == CodeKind::kE4M3 ? E4M3ToFloat(code)
                                                   : SignedNumbers()[code];
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

Result<CodedMatrix> PackCodes(std::span<const WeightTensor> parts, CodeOrder order,
                              ThreadPool* pool) {
  const QuantizedWeights& first = *parts[0].quantized();
  CodedMatrix matrix;
  matrix.order = order;
  matrix.num_in = parts[0].num_in();
  matrix.kind = KindOf(first);
  if (matrix.has_4_bits()) std::copy_n(first.numbers, 16, matrix.numbers.begin());
  matrix.group_inputs = GroupInputs(parts[0]);
  constexpr int64_t kHalfTile = 16;
  if (matrix.group_inputs % kHalfTile != 0 && matrix.num_groups() > 1) {
    matrix.order = CodeOrder::kWords;
  }
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

CodedMatrix EmptyInt4Matrix(int64_t num_out, int64_t num_in, CodeOrder order) {
  CodedMatrix matrix;
  matrix.order = order;
  matrix.num_out = num_out;
  matrix.num_in = num_in;
  std::copy_n(OffsetNumbers(4), matrix.numbers.size(), matrix.numbers.begin());
  matrix.group_inputs = std::min(kQuantBlock, num_in);
  matrix.scale_type = DType::kBF16;
  return matrix;
}

Result<CodedMatrix> QuantizeToInt4(std::span<const WeightTensor> parts, CodeOrder order,
                                   ThreadPool* pool) {
  const std::vector<CodedRow> rows = RowsOf(parts);
  CodedMatrix matrix = EmptyInt4Matrix(std::ssize(rows), parts[0].num_in(), order);
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> data, AllocateZeroed(matrix.num_bytes()));
  matrix.data = data;
  const CodeWriter to(matrix, static_cast<std::byte*>(data.get()));
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    const std::span<const CodedRow> of_panel = RowsOfPanel(rows, panel);
    for (size_t lane = 0; lane < of_panel.size(); ++lane) {
      QuantizeRow(of_panel[lane], matrix, panel, lane, to);
    }
  });
  return matrix;
}

}  // namespace minisgl::cpu
