// See block_panels.h.
//
// A panel's blocks lie in the order of its inputs, the blocks of its 16 outputs beside each other.
// They are decoded one block of all outputs at a time: each output's codes to a row of bytes in
// the first-level cache, and the rows to the order of the kernel.
#include "cpu/block_panels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/memory.h"
#include "cpu/pack_factors.h"
#include "cpu/read_grids.h"
#include "cpu/transpose_words.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/tensor/weight_format.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kHalfBlock = kQuantBlock / 2;
constexpr int64_t kLineBytes = 64;
// Prefetch distance. The panels of a matrix follow each other.
constexpr int64_t kBytesAhead = 4096;
// Bytes of the second half's outputs, which MultiplyByBlocks adds to the outputs of the first half.
constexpr int64_t kSumBytes = kLinearRowsMax * kGroupWidth * int64_t{sizeof(float)};

// The codes and scales of a panel's outputs in one block of inputs.
class DecodedBlock {
 public:
  alignas(kLineBytes) uint8_t codes[kPanelWidth][kBlockElementsMax];
  float scales[kBlockGroupsMax][kPanelWidth];
  std::array<const std::byte*, kPanelWidth> rows;  // of codes

  DecodedBlock() {
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      rows[lane] = reinterpret_cast<const std::byte*>(codes[lane]);
      step_rows_[lane] = reinterpret_cast<const std::byte*>(steps_[lane]);
    }
  }

  // Reads sixteen blocks, which follow each other from `blocks` on, the codes by `read_codes`.
  void Read(const BlockFormat& format, ReadBlockCodes read_codes, const std::byte* blocks) {
    float factors[kPanelWidth];
    for (size_t lane = 0; lane < rows.size(); ++lane, blocks += format.block_bytes) {
      read_codes(blocks, codes[lane]);
      factors[lane] = format.ScaleOf(blocks);
      if (format.codes.read_steps != nullptr) {
        format.codes.read_steps(blocks, steps_[lane], nullptr);
      }
    }
    if (format.codes.read_steps == nullptr) {
      std::memcpy(scales[0], factors, sizeof(factors));
      return;
    }
    int8_t of_groups[kBlockGroupsMax][kPanelWidth];
    TransposeBytes(step_rows_, 0, reinterpret_cast<std::byte*>(of_groups));
    for (int64_t group = 0; group < format.num_groups(); ++group) {
      for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
        scales[group][lane] = factors[lane] * static_cast<float>(of_groups[group][lane]);
      }
    }
  }

 private:
  static_assert(kBlockGroupsMax == kTransposedBytes);
  int8_t steps_[kPanelWidth][kBlockGroupsMax] = {};
  std::array<const std::byte*, kPanelWidth> step_rows_;
};

const std::byte* BlocksAt(const CodedMatrix& matrix, int64_t panel, int64_t block) {
  return matrix.codes(panel) + block * kPanelWidth * matrix.blocks->block_bytes;
}

int64_t NumBlocks(const CodedMatrix& matrix) {
  return matrix.num_in / matrix.blocks->block_elements;
}

// GCC makes one slow instruction of a memset of few bytes.
template <int64_t kBytes>
void StoreZeros(std::byte* to) {
  using Bytes = uint8_t __attribute__((vector_size(16)));
  const Bytes zeros = {};
#pragma GCC unroll 16
  for (int64_t i = 0; i < kBytes; i += int64_t{sizeof(zeros)}) {
    std::memcpy(to + i, &zeros, sizeof(zeros));
  }
}

// A matrix in the memory at `data`, which it does not own.
std::shared_ptr<const void> Unowned(const void* data) {
  return std::shared_ptr<const void>(std::shared_ptr<const void>(), data);
}

// Matrices that a group of outputs is decoded to: one, or one for each half of all kQuantBlock
// inputs.
class DecodedGroup {
 public:
  // Memory for BlockProductBytes().
  DecodedGroup(const CodedMatrix& from, int64_t group, std::byte* memory)
      : read_codes_(FindReadCodes(*from.blocks)) {
    const int64_t first = group * kGroupWidth;
    num_matrices_ = from.group_inputs < kQuantBlock ? 2 : 1;
    for (int64_t i = 0; i < num_matrices_; ++i) {
      CodedMatrix& to = matrices_[static_cast<size_t>(i)];
      to.num_out = std::min(kGroupWidth, from.num_out - first);
      to.num_in = from.num_in;
      to.order = CodeOrder::kQuads;
      to.kind = CodeKind::kInt8;
      to.group_inputs = std::max(kQuantBlock, from.group_inputs);
      to.scale_type = DType::kF32;
      to.data = Unowned(memory);
      data_[static_cast<size_t>(i)] = memory;
      memory += CeilDiv(static_cast<int64_t>(to.num_bytes()), kLineBytes) * kLineBytes;
    }
    end_ = memory;
    for (int64_t panel = 0; panel < matrices_[0].num_panels(); ++panel) {
      DecodePanel(from, first / kPanelWidth + panel, panel);
    }
  }

  std::span<const CodedMatrix> matrices() const {
    return std::span(matrices_).first(static_cast<size_t>(num_matrices_));
  }
  std::byte* end() const { return end_; }  // of their memory

 private:
  // Where the next block's codes and scales go, of a panel of a matrix.
  struct Places {
    std::byte* codes = nullptr;
    float* scales = nullptr;
  };

  std::byte* Codes(size_t matrix, int64_t panel) const {
    return data_[matrix] + panel * matrices_[matrix].panel_bytes();
  }
  float* Scales(size_t matrix, int64_t panel) const {
    const CodedMatrix& its = matrices_[matrix];
    return reinterpret_cast<float*>(data_[matrix] + (its.scales(panel) - its.codes(0)));
  }

  void DecodePanel(const CodedMatrix& from, int64_t panel, int64_t to_panel) const {
    const BlockFormat& format = *from.blocks;
    Places to[2];
    for (size_t i = 0; i < 2; ++i) {
      if (data_[i] != nullptr) to[i] = {Codes(i, to_panel), Scales(i, to_panel)};
    }
    const std::byte* blocks = from.codes(panel);
    const int64_t codes_bytes = format.block_elements * kPanelWidth;
    DecodedBlock decoded;
    for (int64_t block = NumBlocks(from); block > 0; --block) {
      for (int64_t at = 0; at < format.block_bytes * kPanelWidth; at += kLineBytes) {
        __builtin_prefetch(blocks + kBytesAhead + at, /*rw=*/0, /*locality=*/2);
      }
      decoded.Read(format, read_codes_, blocks);
      blocks += format.block_bytes * kPanelWidth;
      if (num_matrices_ == 1) {
        StoreWhole(format, decoded, &to[0]);
      } else {
        StoreHalves(format, decoded, to);
      }
      for (int64_t i = 0; i < num_matrices_; ++i) to[i].codes += codes_bytes;
    }
  }

  static void StoreWhole(const BlockFormat& format, const DecodedBlock& decoded, Places* to) {
    const int64_t width = format.block_elements, num_groups = format.num_groups();
    constexpr int64_t kStep = kTransposedWords * kQuadInputs;
    int64_t input = 0;
    for (; input + kStep <= width; input += kStep) {
      TransposeWords(decoded.rows, static_cast<size_t>(input), to->codes + input * kPanelWidth);
    }
    if (input < width) {
      TransposeWords(decoded.rows, static_cast<size_t>(input), to->codes + input * kPanelWidth,
                     static_cast<size_t>((width - input) / kQuadInputs));
    }
    std::memcpy(to->scales, decoded.scales,
                static_cast<size_t>(num_groups) * sizeof(decoded.scales[0]));
    to->scales += num_groups * kPanelWidth;
  }

  // The first half of each kQuantBlock inputs to the first matrix, the second to the second; zeros
  // in their places in the other one.
  static void StoreHalves(const BlockFormat& format, const DecodedBlock& decoded, Places (&to)[2]) {
    constexpr int64_t kHalfBytes = kHalfBlock * kPanelWidth;
    for (int64_t group = 0; group < format.num_groups(); ++group) {
      Places& its = to[group % 2];
      const int64_t at = group * kHalfBytes;
      TransposeWords(decoded.rows, static_cast<size_t>(group * kHalfBlock), its.codes + at,
                     kHalfBlock / kQuadInputs);
      StoreZeros<kHalfBytes>(to[1 - group % 2].codes + at);
      std::memcpy(its.scales, decoded.scales[group], sizeof(decoded.scales[group]));
      its.scales += kPanelWidth;
    }
  }

  const ReadBlockCodes read_codes_;
  std::array<CodedMatrix, 2> matrices_;
  std::array<std::byte*, 2> data_ = {};
  int64_t num_matrices_ = 1;
  std::byte* end_ = nullptr;
};

}  // namespace

bool HaveCommonBlocks(std::span<const WeightTensor> parts) {
  const BlockFormat* const format = parts[0].blocks();
  if (format == nullptr || !format->is_compact) return false;
  return std::all_of(parts.begin(), parts.end(), [&](const WeightTensor& part) {
    return part.blocks() == format && part.quantized() != nullptr &&
           part.first_input() % format->block_elements == 0 &&
           part.num_in() % format->block_elements == 0;
  });
}

Result<CodedMatrix> PackBlocks(std::span<const WeightTensor> parts, Packing packing) {
  CodedMatrix matrix;
  matrix.num_in = parts[0].num_in();
  matrix.order = CodeOrder::kBlocks;
  matrix.kind = CodeKind::kInt8;
  matrix.blocks = parts[0].blocks();
  matrix.group_inputs = matrix.blocks->codes.group_elements;
  std::vector<CodedRow> rows;
  for (const WeightTensor& part : parts) {
    for (int64_t out = 0; out < part.num_out(); ++out) rows.push_back({&part, out});
  }
  matrix.num_out = std::ssize(rows);
  MINISGL_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                           AllocateToFill(matrix.num_bytes(), packing));
  const auto width = static_cast<size_t>(matrix.blocks->block_bytes);
  packing.pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    const std::span<const CodedRow> of_panel = RowsOfPanel(rows, panel);
    std::array<const std::byte*, kPanelWidth> from = {};
    for (size_t lane = 0; lane < of_panel.size(); ++lane) {
      const CodedRow& row = of_panel[lane];
      from[lane] = row.part->BlockOf(row.out, FirstGroup(*row.part));
    }
    std::byte* to = static_cast<std::byte*>(memory.get()) + panel * matrix.panel_bytes();
    for (int64_t block = 0; block < NumBlocks(matrix); ++block) {
      for (size_t lane = 0; lane < from.size(); ++lane, to += width) {
        // Blocks of zeros are weights of 0.
        if (from[lane] == nullptr) {
          std::memset(to, 0, width);
        } else {
          std::memcpy(to, from[lane] + static_cast<size_t>(block) * width, width);
        }
      }
    }
  });
  matrix.data = memory;
  return matrix;
}

void ExpandBlockPanel(const CodedMatrix& matrix, int64_t panel, DType dtype, ExpandPanel expand,
                      std::byte* out) {
  const BlockFormat& format = *matrix.blocks;
  const int64_t width = format.block_elements;
  const ReadBlockCodes read_codes = FindReadCodes(format);
  DecodedBlock decoded;
  // One block of the panel as a matrix, with its scales behind its codes.
  alignas(kLineBytes)
      std::byte memory[kPanelWidth * (kBlockElementsMax + kBlockGroupsMax * sizeof(float))];
  CodedMatrix one;
  one.num_out = kPanelWidth;
  one.num_in = width;
  one.order = CodeOrder::kWords;
  one.kind = CodeKind::kInt8;
  one.group_inputs = matrix.group_inputs;
  one.data = Unowned(memory);
  std::byte* const scales = memory + one.panel_bytes();
  for (int64_t block = 0; block < NumBlocks(matrix); ++block) {
    decoded.Read(format, read_codes, BlocksAt(matrix, panel, block));
    for (int64_t input = 0; input < width; input += kTransposedBytes) {
      TransposeBytes(decoded.rows, static_cast<size_t>(input), memory + input * kPanelWidth);
    }
    std::memcpy(scales, decoded.scales,
                static_cast<size_t>(format.num_groups()) * sizeof(decoded.scales[0]));
    expand(one, 0, dtype, out);
    out += width * kPanelWidth * static_cast<int64_t>(DTypeBytes(dtype));
  }
}

void MultiplyByBlocks(const LinearBlock& block, MultiplyCodes multiply, std::byte* memory) {
  const CodedMatrix& matrix = *block.weight->coded;
  const int64_t first = block.group * kGroupWidth;
  const DecodedGroup group(matrix, block.group, memory);
  PackedMatrix weight;
  weight.num_out = group.matrices()[0].num_out;
  weight.num_in = matrix.num_in;
  weight.format = block.weight->format;
  LinearBlock of_half = block;
  of_half.weight = &weight;
  of_half.group = 0;
  if (block.bias != nullptr) of_half.bias = block.bias + first;
  const auto multiply_by = [&](const CodedMatrix& its) {
    weight.coded = std::shared_ptr<const CodedMatrix>(std::shared_ptr<const CodedMatrix>(), &its);
    multiply(of_half);
  };
  multiply_by(group.matrices()[0]);
  if (group.matrices().size() == 1) return;
  auto* const sums = reinterpret_cast<float*>(group.end());
  of_half.bias = nullptr;
  of_half.out = sums;
  of_half.out_stride = kGroupWidth;
  multiply_by(group.matrices()[1]);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    float* const out = block.out + row * block.out_stride;
    for (int64_t i = 0; i < weight.num_out; ++i) out[i] += sums[row * kGroupWidth + i];
  }
}

int64_t BlockProductBytes(int64_t num_in) {
  // Two matrices of bytes, each with a scale for kQuantBlock inputs.
  const int64_t scales = CeilDiv(num_in, kQuantBlock) * int64_t{sizeof(float)};
  return 2 * (kGroupWidth * (num_in + scales) + kLineBytes) + kSumBytes;
}

}  // namespace minisgl::cpu
