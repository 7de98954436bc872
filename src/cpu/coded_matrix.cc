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
// Of 6-bit codes: inputs of a unit of the layout, and words of 32 bits that an output has of it.
constexpr int64_t kUnitInputs = 16, kUnitWords = 3;
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

// True if the codes, which are kInt8, fit in 6 bits.
bool Fit6Bits(const WeightTensor& part) {
  return part.blocks() != nullptr && part.blocks()->codes.fit_6_bits;
}

int64_t GroupInputs(const WeightTensor& part) {
  return std::min(part.quantized()->group_inputs, part.num_in());
}

// Groups that share a factor; 0: scales have no steps.
int64_t FactorGroups(const WeightTensor& part) {
  const BlockFormat* const blocks = part.blocks();
  if (blocks == nullptr || blocks->codes.steps == nullptr) return 0;
  return blocks->block_elements / blocks->codes.group_elements;
}

// The group of the first input.
int64_t FirstGroup(const WeightTensor& part) {
  return part.first_input() / part.quantized()->group_inputs;
}

// True if the part begins with a group of the stored matrix, and with groups that share a factor,
// or is within one group.
bool HasWholeGroups(const WeightTensor& part) {
  const int64_t group = part.quantized()->group_inputs;
  const int64_t last = part.first_input() + part.num_in() - 1;
  if (last / group == FirstGroup(part)) return true;
  return part.first_input() % (group * std::max<int64_t>(1, FactorGroups(part))) == 0;
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

// The place of the upper bits of the code of an input in the unit's word.
int UpperShift(size_t input) {
  const size_t k = input % static_cast<size_t>(kUnitInputs);
  return static_cast<int>(k % 8 / 2 * 8 + k / 8 * 4 + k % 2 * 2);
}

// The same of 6 bits.
void WriteUnits(std::span<const uint8_t> codes, size_t lane, std::byte* to) {
  constexpr auto kInputs = static_cast<size_t>(kUnitInputs);
  for (size_t first = 0; first < codes.size(); first += kInputs) {
    uint32_t words[kUnitWords] = {};
    for (size_t i = first; i < std::min(codes.size(), first + kInputs); ++i) {
      words[(i - first) / 8] |= static_cast<uint32_t>(codes[i] & 15) << 4 * (i % 8);
      words[2] |= static_cast<uint32_t>(codes[i] >> 4) << UpperShift(i);
    }
    std::byte* const unit = to + first / kInputs * kUnitWords * kPanelWidth * sizeof(uint32_t);
    for (size_t word = 0; word < kUnitWords; ++word) {
      std::memcpy(unit + (word * kPanelWidth + lane) * sizeof(uint32_t), &words[word],
                  sizeof(uint32_t));
    }
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
    if (matrix_.has_6_bits()) return WriteUnits(codes, lane, to);
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
  std::byte* OffsetsOf(int64_t panel) const { return ScalesOf(matrix_.num_panels() + panel); }

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
      if (matrix_.has_6_bits()) {
        const auto first = static_cast<uint8_t>(static_cast<int8_t>(matrix_.numbers[0]));
        for (uint8_t& code : codes) code = static_cast<uint8_t>(code - first);
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
      if (matrix_.factor_groups > 0) {
        WriteSteps(row, group, panel, lane);
        continue;
      }
      const int64_t stored = FirstGroup(*row.part) + group;
      WriteFactor(row.part->ScaleOf(row.out, stored), at, to_.ScalesOf(panel));
      if (matrix_.has_offsets) {
        WriteFactor(row.part->OffsetOf(row.out, stored), at, to_.OffsetsOf(panel));
      }
      if (!matrix_.has_zeros) continue;
      const float zero = row.part->ZeroOf(row.out, stored) - shift;
      to_.ZerosOf(panel)[at] = static_cast<std::byte>(static_cast<int8_t>(zero));
    }
  }

  // Writes element `at` of scales or offsets in the matrix's type.
  void WriteFactor(float factor, size_t at, std::byte* to) const {
    if (matrix_.scale_type == DType::kF32) {
      std::memcpy(to + at * sizeof(factor), &factor, sizeof(factor));
      return;
    }
    const uint16_t bits =
        matrix_.scale_type == DType::kBF16 ? FloatToBf16(factor) : FloatToF16(factor);
    std::memcpy(to + at * sizeof(bits), &bits, sizeof(bits));
  }

  // Writes the steps of a group, and the factors of the groups that begin with it.
  void WriteSteps(const CodedRow& row, int64_t group, int64_t panel, size_t lane) const {
    const WeightTensor::BlockFactors its =
        row.part->FactorsOf(row.out, FirstGroup(*row.part) + group);
    const auto at = static_cast<size_t>(group * kPanelWidth) + lane;
    const auto factor_at = static_cast<size_t>(group / matrix_.factor_groups * kPanelWidth) + lane;
    const bool begins = group % matrix_.factor_groups == 0;
    const auto write = [&](float factor, int step, std::byte* to) {
      to[at] = static_cast<std::byte>(static_cast<int8_t>(step));
      if (begins) WriteFactor(factor, factor_at, to + matrix_.step_bytes());
    };
    write(its.scale, its.steps.scale, to_.ScalesOf(panel));
    if (matrix_.has_offsets) write(its.offset, its.steps.offset, to_.OffsetsOf(panel));
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

// Which types hold scales and offsets exactly.
struct ExactTypes {
  bool bf16 = true, f16 = true;
  void Add(float factor) {
    bf16 = bf16 && Bf16ToFloat(FloatToBf16(factor)) == factor;
    f16 = f16 && F16ToFloat(FloatToF16(factor)) == factor;
  }
};

// Of the factors of `rows`, if these have `factor_groups`, else of their scales and offsets.
ExactTypes TypesOf(std::span<const CodedRow> rows, const CodedMatrix& matrix) {
  ExactTypes types;
  const int64_t step = std::max<int64_t>(1, matrix.factor_groups);
  for (const CodedRow& row : rows) {
    for (int64_t local = 0; local < matrix.num_groups(); local += step) {
      const int64_t group = FirstGroup(*row.part) + local;
      if (matrix.factor_groups > 0) {
        const WeightTensor::BlockFactors its = row.part->FactorsOf(row.out, group);
        types.Add(its.scale);
        types.Add(its.offset);
      } else {
        types.Add(row.part->ScaleOf(row.out, group));
        types.Add(row.part->OffsetOf(row.out, group));
      }
    }
  }
  return types;
}

}  // namespace

int64_t CodedMatrix::panel_bytes() const {
  if (order == CodeOrder::kLines) return CeilDiv(num_in, kLineInputs) * kPanelWidth * line_bytes();
  constexpr int64_t kUnitBytes = kUnitWords * kPanelWidth * int64_t{sizeof(uint32_t)};
  if (has_6_bits()) return CeilDiv(num_in, kUnitInputs) * kUnitBytes;
  if (!has_4_bits()) return num_in * kPanelWidth;
  return CeilDiv(num_in, kWordInputs) * kPanelWidth * static_cast<int64_t>(sizeof(uint32_t));
}

int64_t CodedMatrix::scale_bytes() const {
  const int64_t num_factors =
      factor_groups == 0 ? num_groups() : CeilDiv(num_groups(), factor_groups);
  return step_bytes() + num_factors * kPanelWidth * static_cast<int64_t>(DTypeBytes(scale_type));
}

size_t CodedMatrix::num_bytes() const {
  int64_t bytes = panel_bytes() + scale_bytes();
  if (has_zeros) bytes += num_groups() * kPanelWidth;
  if (has_offsets) bytes += scale_bytes();
  return static_cast<size_t>(num_panels() * bytes);
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
  if (has_6_bits()) {
    const std::byte* const unit =
        from + input / kUnitInputs * kUnitWords * kPanelWidth * int64_t{sizeof(uint32_t)};
    const auto word = [&](int64_t i) {
      return Load<uint32_t>(unit + (i * kPanelWidth + lane) * int64_t{sizeof(uint32_t)});
    };
    const uint32_t lower = word(input % kUnitInputs / 8) >> 4 * (input % 8) & 15;
    const uint32_t upper = word(2) >> UpperShift(static_cast<size_t>(input)) & 3;
    return static_cast<uint8_t>(lower | upper << 4);
  }
  if (!has_4_bits()) return static_cast<uint8_t>(from[input * kPanelWidth + lane]);
  const int64_t word = input / kWordInputs * kPanelWidth + lane, k = input % kWordInputs;
  return static_cast<uint8_t>(from[word * 4 + k / 2]) >> k % 2 * 4 & 0xF;
}

float CodedMatrix::FactorAt(const std::byte* of_panel, int64_t group, int64_t lane) const {
  int64_t at = group * kPanelWidth + lane;
  float step = 1;
  if (factor_groups > 0) {
    step = static_cast<int8_t>(of_panel[at]);
    at = group / factor_groups * kPanelWidth + lane;
  }
  const std::byte* const from =
      of_panel + step_bytes() + at * static_cast<int64_t>(DTypeBytes(scale_type));
  if (scale_type == DType::kF32) return Load<float>(from) * step;
  const auto bits = Load<uint16_t>(from);
  return (scale_type == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits)) * step;
}

void CodedMatrix::ReadRow(int64_t out, float* row) const {
  const int64_t panel = out / kPanelWidth, lane = out % kPanelWidth;
  for (int64_t i = 0; i < num_in; ++i) {
    const uint8_t code = CodeAt(out, i);
    const float number = has_4_bits()              ? numbers[code]
                         : has_6_bits()            ? numbers[0] + static_cast<float>(code)
                         : kind == CodeKind::kE4M3 ? E4M3ToFloat(code)
                                                   : SignedNumbers()[code];
    const int64_t group = i / group_inputs;
    const float scale = FactorAt(scales(panel), group, lane);
    const float zero = has_zeros ? zeros(panel)[group * kPanelWidth + lane] : 0.0f;
    row[i] = has_offsets ? number * scale + FactorAt(offsets(panel), group, lane)
                         : (number - zero) * scale;
  }
}

bool HaveCommonCodes(std::span<const WeightTensor> parts) {
  for (const WeightTensor& part : parts) {
    if (part.quantized() == nullptr || part.quantized()->group_index != nullptr ||
        !HasWholeGroups(part)) {
      return false;
    }
    // A word has codes of one group.
    const int64_t group = GroupInputs(part);
    if (group != GroupInputs(parts[0]) || (group % kWordInputs != 0 && group != part.num_in())) {
      return false;
    }
    const QuantizedWeights &its = *part.quantized(), &first = *parts[0].quantized();
    if (KindOf(its) != KindOf(first) || part.has_offsets() != parts[0].has_offsets() ||
        FactorGroups(part) != FactorGroups(parts[0]) || Fit6Bits(part) != Fit6Bits(parts[0])) {
      return false;
    }
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
  matrix.factor_groups = FactorGroups(parts[0]);
  matrix.has_offsets = parts[0].has_offsets();
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
  if (matrix.order == CodeOrder::kWords && Fit6Bits(parts[0])) {
    matrix.kind = CodeKind::kCounting6;
    matrix.numbers[0] = matrix.has_offsets ? 0.0f : -32.0f;  // those with offsets have no sign
  }
  const std::vector<CodedRow> rows = RowsOf(parts);
  const auto rows_of = [&](int64_t panel) { return RowsOfPanel(rows, panel); };
  std::atomic<bool> are_bf16 = true, are_f16 = true;
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    const ExactTypes types = TypesOf(rows_of(panel), matrix);
    if (!types.bf16) are_bf16 = false;
    if (!types.f16) are_f16 = false;
  });
  matrix.scale_type = are_bf16 ? DType::kBF16 : are_f16 ? DType::kF16 : DType::kF32;
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
