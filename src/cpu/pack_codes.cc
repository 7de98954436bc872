// See pack_codes.h.
//
// A thread packs a panel at a time: the codes of its outputs are read to rows of bytes, which are
// written in the order of the matrix. Loading reads and writes each weight once, so the loops over
// bytes are made for vectors of any processor, and take about the time of the memory.
#include "cpu/pack_codes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/block_panels.h"
#include "cpu/join_codes.h"
#include "cpu/memory.h"
#include "cpu/pack_factors.h"
#include "cpu/transpose_words.h"
#include "minisgl/base/checked_math.h"
#include "tensor/quantize.h"

namespace minisgl::cpu {
namespace {

// Subtracted from an unsigned code, it gives a code in two's complement that stands for 128 less.
constexpr uint8_t kUnsignedMore = 0x80;

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

// True for blocks whose scales are steps of type e4m3.
bool HasE4M3Steps(const WeightTensor& part) {
  return part.blocks() != nullptr && part.blocks()->codes.has_e4m3_steps;
}

int64_t GroupInputs(const WeightTensor& part) {
  return std::min(part.quantized()->group_inputs, part.num_in());
}

std::vector<CodedRow> RowsOf(std::span<const WeightTensor> parts) {
  std::vector<CodedRow> rows;
  for (const WeightTensor& part : parts) {
    for (int64_t out = 0; out < part.num_out(); ++out) rows.push_back({&part, out});
  }
  return rows;
}

// --- codes ---------------------------------------------------------------------------------------

// The codes of a panel, one a byte: a row for each output that the panel has, with zeros up to the
// end of a line.
class PanelCodes {
 public:
  static_assert(kLineInputs % kJoined4 == 0 && kLineInputs % kJoined6 == 0);  // rows are joined
  // Codes are of any value until they are written.
  void Reset(size_t num_rows, int64_t num_in) {
    num_rows_ = num_rows;
    stride_ = CeilDiv(num_in, kLineInputs) * kLineInputs;
    bytes_.resize(num_rows * static_cast<size_t>(stride_));
    for (size_t lane = 0; lane < num_rows; ++lane)
      std::fill(row(lane) + num_in, row(lane) + stride_, 0);
  }
  size_t num_rows() const { return num_rows_; }
  int64_t stride() const { return stride_; }
  uint8_t* row(size_t lane) { return bytes_.data() + lane * static_cast<size_t>(stride_); }
  const uint8_t* row(size_t lane) const {
    return bytes_.data() + lane * static_cast<size_t>(stride_);
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t num_rows_ = 0;
  int64_t stride_ = 0;
};

// The rows of a panel that has all outputs.
std::array<const std::byte*, kPanelWidth> RowsOf(const PanelCodes& codes) {
  std::array<const std::byte*, kPanelWidth> rows;
  for (size_t lane = 0; lane < rows.size(); ++lane) {
    rows[lane] = reinterpret_cast<const std::byte*>(codes.row(lane));
  }
  return rows;
}

// Words [first, num_words) of each row of the panel's outputs.
void WriteWordsOf(const PanelCodes& codes, int64_t first, int64_t num_words, std::byte* to) {
  for (size_t lane = 0; lane < codes.num_rows(); ++lane) {
    for (int64_t i = first; i < num_words; ++i) {
      uint32_t word;
      std::memcpy(&word, codes.row(lane) + static_cast<size_t>(i) * sizeof(word), sizeof(word));
      const size_t at = static_cast<size_t>(i * kPanelWidth) + lane;
      std::memcpy(to + at * sizeof(word), &word, sizeof(word));
    }
  }
}

// Writes the first `num_words` words of 32 bits of each row: a word of each output, then the next.
void WriteRowsOfWords(const PanelCodes& codes, int64_t num_words, std::byte* to) {
  constexpr int64_t kMultiple = 4, kWordBytes = sizeof(uint32_t);  // of TransposeWords
  int64_t num_transposed = 0;
  if (codes.num_rows() == kPanelWidth) {
    num_transposed = num_words / kMultiple * kMultiple;
    const auto rows = RowsOf(codes);
    for (int64_t first = 0; first < num_transposed; first += kTransposedWords) {
      TransposeWords(rows, static_cast<size_t>(first * kWordBytes),
                     to + first * kPanelWidth * kWordBytes,
                     static_cast<size_t>(std::min(kTransposedWords, num_transposed - first)));
    }
  }
  WriteWordsOf(codes, num_transposed, num_words, to);
}

// Codes of 4 bits, words of the panel at `to`. Replaces the codes by words.
void WriteWords(PanelCodes* codes, int64_t num_in, std::byte* to) {
  for (size_t lane = 0; lane < codes->num_rows(); ++lane) {
    JoinCodes4(codes->row(lane), codes->stride());
  }
  WriteRowsOfWords(*codes, CeilDiv(num_in, kWordInputs), to);
}

// The same of 6 bits.
void WriteUnits(PanelCodes* codes, int64_t num_in, std::byte* to) {
  for (size_t lane = 0; lane < codes->num_rows(); ++lane) {
    JoinCodes6(codes->row(lane), codes->stride());
  }
  WriteRowsOfWords(*codes, CeilDiv(num_in, kUnitInputs) * kUnitWords, to);
}

// Codes of 8 bits: sixteen bytes for each input.
void WriteBytes(const PanelCodes& codes, int64_t num_in, std::byte* to) {
  int64_t first = 0;
  if (codes.num_rows() == kPanelWidth) {
    const auto rows = RowsOf(codes);
    for (; first + kTransposedBytes <= num_in; first += kTransposedBytes) {
      TransposeBytes(rows, static_cast<size_t>(first), to + first * kPanelWidth);
    }
  }
  for (size_t lane = 0; lane < codes.num_rows(); ++lane) {
    for (int64_t i = first; i < num_in; ++i) {
      to[static_cast<size_t>(i * kPanelWidth) + lane] = std::byte{codes.row(lane)[i]};
    }
  }
}

// Codes of 8 bits: a word of four inputs for each output.
void WriteQuads(const PanelCodes& codes, int64_t num_in, std::byte* to) {
  WriteRowsOfWords(codes, CeilDiv(num_in, kQuadInputs), to);
}

// A line of 4 bits.
void WriteNibbles(const uint8_t* codes, std::byte* line) {
  constexpr int64_t kWords = kLineInputs / 4;
  uint16_t words[kWords];
  for (int64_t w = 0; w < kWords; ++w) {
    words[w] = static_cast<uint16_t>(codes[w] | codes[kWords + w] << 4 |
                                     codes[2 * kWords + w] << 8 | codes[3 * kWords + w] << 12);
  }
  std::memcpy(line, words, sizeof(words));
}

// The same, the bytes in the middle of each word exchanged.
void WriteSplitQuads(const PanelCodes& codes, int64_t num_in, std::byte* to) {
  WriteQuads(codes, num_in, to);
  const int64_t num_words = CeilDiv(num_in, kQuadInputs) * kPanelWidth;
  for (int64_t i = 0; i < num_words; ++i, to += kQuadInputs) std::swap(to[1], to[2]);
}

// Writes codes to `data`, the memory of `matrix`. May change `codes`.
void WriteCodes(const CodedMatrix& matrix, int64_t panel, PanelCodes* panel_codes,
                std::byte* data) {
  const PanelCodes& codes = *panel_codes;
  if (matrix.order == CodeOrder::kLines) {
    for (size_t lane = 0; lane < codes.num_rows(); ++lane) {
      const int64_t out = panel * kPanelWidth + static_cast<int64_t>(lane);
      std::byte* line = data + matrix.LineOffset(out, 0);
      const int64_t step = matrix.LineOffset(out, 1) - matrix.LineOffset(out, 0);
      for (int64_t first = 0; first < codes.stride(); first += kLineInputs, line += step) {
        const uint8_t* const from = codes.row(lane) + first;
        if (matrix.has_4_bits()) {
          WriteNibbles(from, line);
        } else {
          std::memcpy(line, from, kLineInputs);
        }
      }
    }
    return;
  }
  std::byte* const to = data + panel * matrix.panel_bytes();
  if (matrix.order == CodeOrder::kQuads) return WriteQuads(codes, matrix.num_in, to);
  if (matrix.order == CodeOrder::kSplitQuads) return WriteSplitQuads(codes, matrix.num_in, to);
  if (matrix.has_4_bits()) return WriteWords(panel_codes, matrix.num_in, to);
  if (matrix.has_6_bits()) return WriteUnits(panel_codes, matrix.num_in, to);
  WriteBytes(codes, matrix.num_in, to);
}

// Subtracts from each code. The count is a value of its own: a member might be what a code's byte
// changes, and the loop would be one of single bytes.
void Subtract(uint8_t subtrahend, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(codes[i] - subtrahend);
}

// Reads the codes of an output, in the numbers of the matrix.
void ReadCodes(const CodedRow& row, const CodedMatrix& matrix, uint8_t* codes) {
  row.part->ReadCodes(row.out, codes);
  if (matrix.kind == CodeKind::kInt8 && row.part->quantized()->numbers != SignedNumbers()) {
    Subtract(kUnsignedMore, matrix.num_in, codes);
  }
  if (matrix.has_6_bits()) {
    const auto first = static_cast<uint8_t>(static_cast<int8_t>(matrix.numbers[0]));
    Subtract(first, matrix.num_in, codes);
  }
}

// Counts subnormal codes of type e4m3.
int64_t CountSubnormals(const uint8_t* codes, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<uint8_t>(codes[i] & 0x7F);
    sum += static_cast<uint8_t>(magnitude - 1) < 7 ? 1 : 0;
  }
  return sum;
}

// True if a scale of an output of `matrix` is `limit` or more, of either sign.
bool HasScaleFrom(float limit, const CodedMatrix& matrix, ThreadPool* pool) {
  std::atomic<bool> has{false};
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    const int64_t lanes = std::min(kPanelWidth, matrix.num_out - panel * kPanelWidth);
    for (int64_t group = 0; group < matrix.num_groups(); ++group) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        if (!(std::fabs(matrix.ScaleOf(panel, group, lane)) < limit)) has = true;
      }
    }
  });
  return has;
}

// Quantizes the weights of an output to its codes and scales: to int4 or, if the matrix is of
// kInt8, to int8.
void QuantizeRow(const CodedRow& row, const CodedMatrix& matrix, size_t lane, uint8_t* codes,
                 std::byte* scales) {
  std::vector<float> weights(static_cast<size_t>(matrix.num_in));
  row.part->ReadRow(row.out, weights.data());
  for (int64_t group = 0; group < matrix.num_groups(); ++group) {
    const int64_t first = group * matrix.group_inputs;
    const int64_t count = std::min(matrix.group_inputs, matrix.num_in - first);
    int8_t q[kQuantBlock];
    const bool is_int8 = matrix.kind == CodeKind::kInt8;
    const auto quantize = is_int8 ? tensor::QuantizeWeights : tensor::QuantizeWeightsInt4;
    const uint16_t scale = quantize(weights.data() + first, count, q);
    const int offset = is_int8 ? 0 : 8;
    for (int64_t i = 0; i < count; ++i) codes[first + i] = static_cast<uint8_t>(q[i] + offset);
    const size_t at = static_cast<size_t>(group * kPanelWidth) + lane;
    std::memcpy(scales + at * sizeof(scale), &scale, sizeof(scale));
  }
}

// True if a panel's blocks are of one format and have codes and scales as the matrix has them.
bool CanMoveBlocks(std::span<const CodedRow> rows, const CodedMatrix& matrix) {
  const BlockFormat* const format = rows[0].part->blocks();
  return format != nullptr && format->codes.bytes_at >= 0 && format->has_f16_scales() &&
         format->block_elements == kQuantBlock && rows.size() == kPanelWidth &&
         matrix.order == CodeOrder::kQuads && matrix.scale_type == DType::kF16 &&
         matrix.num_in % kQuantBlock == 0 &&
         std::all_of(rows.begin(), rows.end(), [&](const CodedRow& row) {
           return row.part->blocks() == format && row.part->first_input() % kQuantBlock == 0;
         });
}

// Writes a panel of such rows.
void MoveBlocks(std::span<const CodedRow> rows, const CodedMatrix& matrix, int64_t panel,
                std::byte* data) {
  const BlockFormat& format = *rows[0].part->blocks();
  std::array<const std::byte*, kPanelWidth> blocks, codes;
  for (size_t lane = 0; lane < blocks.size(); ++lane) {
    blocks[lane] = rows[lane].part->BlockOf(rows[lane].out, FirstGroup(*rows[lane].part));
    codes[lane] = blocks[lane] + format.codes.bytes_at;
  }
  std::byte* to = data + panel * matrix.panel_bytes();
  std::byte* const scales = PanelFactors(matrix, panel, data).scales;
  for (int64_t group = 0; group < matrix.num_groups(); ++group) {
    const auto offset = static_cast<size_t>(group * format.block_bytes);
    TransposeWords(codes, offset, to, kQuantBlock / kQuadInputs);
    to += kQuantBlock * kPanelWidth;
    uint16_t bits[kPanelWidth];
    for (size_t lane = 0; lane < blocks.size(); ++lane) {
      bits[lane] = format.ScaleBits(blocks[lane] + offset);
    }
    std::memcpy(scales + static_cast<size_t>(group) * sizeof(bits), bits, sizeof(bits));
  }
}

// Allocates the memory of `matrix` and writes all panels: fill(row, lane, codes, panel, data) reads
// an output's codes and writes its scales.
template <typename Fill>
Status WritePanels(std::span<const CodedRow> rows, Packing packing, const Fill& fill,
                   CodedMatrix* matrix) {
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                           AllocateToFill(matrix->num_bytes(), packing));
  auto* const data = static_cast<std::byte*>(memory.get());
  std::vector<PanelCodes> codes_of(static_cast<size_t>(packing.pool->num_threads()));
  packing.pool->ParallelFor(matrix->num_panels(), [&](int64_t panel, int thread) {
    const std::span<const CodedRow> of_panel = RowsOfPanel(rows, panel);
    if (CanMoveBlocks(of_panel, *matrix)) return MoveBlocks(of_panel, *matrix, panel, data);
    PanelCodes& codes = codes_of[static_cast<size_t>(thread)];
    codes.Reset(of_panel.size(), matrix->num_in);
    for (size_t lane = 0; lane < of_panel.size(); ++lane) {
      fill(of_panel[lane], lane, codes.row(lane), panel, data);
    }
    WriteCodes(*matrix, panel, &codes, data);
  });
  matrix->data = memory;
  return Status();
}

}  // namespace

bool HaveCommonCodes(std::span<const WeightTensor> parts) {
  for (const WeightTensor& part : parts) {
    if (part.quantized() == nullptr || part.quantized()->group_index != nullptr ||
        !part.HasWholeGroups()) {
      return false;
    }
    // A word has codes of one group.
    const int64_t group = GroupInputs(part);
    if (group != GroupInputs(parts[0]) || (group % kWordInputs != 0 && group != part.num_in())) {
      return false;
    }
    const QuantizedWeights &its = *part.quantized(), &first = *parts[0].quantized();
    if (KindOf(its) != KindOf(first) || part.has_offsets() != parts[0].has_offsets() ||
        BlockFactorGroups(part) != BlockFactorGroups(parts[0]) ||
        Fit6Bits(part) != Fit6Bits(parts[0]) || HasE4M3Steps(part) != HasE4M3Steps(parts[0])) {
      return false;
    }
    if (its.codes.bits == 4 && its.numbers != first.numbers) return false;
  }
  return true;
}

bool HasInt8Inputs(std::span<const WeightTensor> parts) {
  // The sum of as many products as integers of 32 bits hold.
  constexpr int64_t kInputsMax = int64_t{1} << 17;
  return std::all_of(parts.begin(), parts.end(), [](const WeightTensor& part) {
    const QuantizedWeights& its = *part.quantized();
    return its.int8_inputs && its.numbers == SignedNumbers() && its.zeros.data == nullptr &&
           its.num_groups == 1 && part.num_in() <= kInputsMax;
  });
}

bool HasIntegerBlocks(std::span<const WeightTensor> parts) {
  return std::all_of(parts.begin(), parts.end(), [](const WeightTensor& part) {
    const QuantizedWeights& its = *part.quantized();
    const int64_t group = GroupInputs(part);
    const bool has_blocks =
        group == part.num_in() || (group % kQuantBlock == 0 &&
                                   std::has_single_bit(static_cast<uint64_t>(group / kQuantBlock)));
    return KindOf(its) == CodeKind::kInt8 && its.numbers != UnsignedNumbers() &&
           its.zeros.data == nullptr && !part.has_offsets() && has_blocks;
  });
}

Result<CodedMatrix> PackCodes(std::span<const WeightTensor> parts, CodeOrders orders,
                              Packing packing) {
  if (orders.keeps_blocks && HaveCommonBlocks(parts)) return PackBlocks(parts, packing);
  const QuantizedWeights& first = *parts[0].quantized();
  CodedMatrix matrix;
  matrix.num_in = parts[0].num_in();
  matrix.kind = KindOf(first);
  matrix.order = matrix.has_4_bits() || Fit6Bits(parts[0]) ? orders.small
                 : HasInt8Inputs(parts)                    ? orders.int8_inputs
                 : HasIntegerBlocks(parts)                 ? orders.integers
                 : matrix.kind == CodeKind::kE4M3          ? orders.e4m3
                                                           : orders.bytes;
  if (matrix.has_4_bits()) std::copy_n(first.numbers, 16, matrix.numbers.begin());
  matrix.group_inputs = GroupInputs(parts[0]);
  matrix.has_offsets = parts[0].has_offsets();
  constexpr int64_t kHalfTile = 16;
  if (matrix.order == CodeOrder::kLines && matrix.group_inputs % kHalfTile != 0 &&
      matrix.num_groups() > 1) {
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
  ChooseScaleForm(parts, rows, packing.pool, &matrix);
  const bool may_move_bits =
      matrix.order == CodeOrder::kSplitQuads && !matrix.has_zeros && !matrix.has_offsets;
  std::atomic<int64_t> num_subnormals{0};
  const auto fill = [&](const CodedRow& row, size_t lane, uint8_t* codes, int64_t panel,
                        std::byte* data) {
    ReadCodes(row, matrix, codes);
    WriteFactors(row, matrix, panel, lane, data);
    if (may_move_bits) num_subnormals += CountSubnormals(codes, matrix.num_in);
  };
  MINISGL_RETURN_IF_ERROR(WritePanels(rows, packing, fill, &matrix));
  matrix.moves_bits = may_move_bits &&
                      num_subnormals <= matrix.num_out * matrix.num_in / kSubnormalShare &&
                      !HasScaleFrom(kMovedScaleMax, matrix, packing.pool);
  return matrix;
}

bool QuantizesToCodes(const WeightFormat& format) {
  return format.quantization == Quantization::kInt4 || format.quantization == Quantization::kInt8;
}

CodedMatrix EmptyQuantizedMatrix(const WeightFormat& format, int64_t num_out, int64_t num_in,
                                 CodeOrders orders) {
  CodedMatrix matrix;
  matrix.num_out = num_out;
  matrix.num_in = num_in;
  if (format.quantization == Quantization::kInt8) {
    matrix.order = orders.quantized_int8;
    matrix.kind = CodeKind::kInt8;
  } else {
    matrix.order = orders.small;
    std::copy_n(OffsetNumbers(4), matrix.numbers.size(), matrix.numbers.begin());
  }
  matrix.group_inputs = std::min(kQuantBlock, num_in);
  matrix.scale_type = DType::kBF16;
  return matrix;
}

Result<CodedMatrix> QuantizeToCodes(std::span<const WeightTensor> parts, const WeightFormat& format,
                                    CodeOrders orders, Packing packing) {
  const std::vector<CodedRow> rows = RowsOf(parts);
  CodedMatrix matrix = EmptyQuantizedMatrix(format, std::ssize(rows), parts[0].num_in(), orders);
  const auto fill = [&](const CodedRow& row, size_t lane, uint8_t* codes, int64_t panel,
                        std::byte* data) {
    QuantizeRow(row, matrix, lane, codes, PanelFactors(matrix, panel, data).scales);
  };
  MINISGL_RETURN_IF_ERROR(WritePanels(rows, packing, fill, &matrix));
  return matrix;
}

}  // namespace minisgl::cpu
