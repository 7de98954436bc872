// See pack_factors.h.
#include "cpu/pack_factors.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace minisgl::cpu {
namespace {

// The steps of the scales of all parts.
ScaleSteps StepsOf(std::span<const WeightTensor> parts) {
  // All parts that are rows of blocks have the same steps (HaveCommonCodes).
  if (BlockFactorGroups(parts[0]) > 0) return ScaleSteps::kIntegers;
  const bool divides = parts[0].quantized()->divides_by_global;
  const bool are_e4m3 = std::all_of(parts.begin(), parts.end(), [&](const WeightTensor& part) {
    const bool is_e4m3 = part.blocks() == nullptr ? part.quantized()->scales.dtype == DType::kE4M3
                                                  : part.blocks()->codes.has_e4m3_steps;
    return is_e4m3 && part.quantized()->divides_by_global == divides;
  });
  if (!are_e4m3) return ScaleSteps::kNone;
  return divides ? ScaleSteps::kE4M3Divided : ScaleSteps::kE4M3;
}

// --- the type of scales --------------------------------------------------------------------------

// Which types hold scales and offsets exactly.
struct ExactTypes {
  bool bf16 = true, f16 = true;
  void Add(float factor) {
    bf16 = bf16 && Bf16ToFloat(FloatToBf16(factor)) == factor;
    f16 = f16 && F16ToFloat(FloatToF16(factor)) == factor;
  }
};

// Adds the scales and offsets of the blocks of a row, which without bf16 are f16 or were tried.
void AddBlocks(const CodedRow& row, int64_t num_groups, ExactTypes* types) {
  const BlockFormat& format = *row.part->blocks();
  const bool is_f16 = types->f16;
  for (int64_t group = 0; group < num_groups; group += format.num_groups()) {
    if (format.has_f16_scales() && !types->bf16) break;
    const std::byte* const block = row.part->BlockOf(row.out, FirstGroup(*row.part) + group);
    types->Add(format.ScaleOf(block));
    if (row.part->has_offsets()) types->Add(format.OffsetOf(block));
  }
  if (format.has_f16_scales()) types->f16 = is_f16;
}

ExactTypes TypesOf(std::span<const CodedRow> rows, const CodedMatrix& matrix) {
  ExactTypes types;
  for (const CodedRow& row : rows) {
    if (row.part->blocks() != nullptr) {
      AddBlocks(row, matrix.num_groups(), &types);
      continue;
    }
    for (int64_t group = 0; group < matrix.num_groups() && (types.bf16 || types.f16); ++group) {
      types.Add(row.part->ScaleOf(row.out, FirstGroup(*row.part) + group));
    }
  }
  return types;
}

// bf16 or f16 if it holds all scales and offsets exactly, else f32.
DType ScaleType(std::span<const CodedRow> rows, const CodedMatrix& matrix, ThreadPool* pool) {
  std::atomic<bool> are_bf16 = true, are_f16 = true;
  pool->ParallelFor(matrix.num_panels(), [&](int64_t panel, int) {
    const ExactTypes types = TypesOf(RowsOfPanel(rows, panel), matrix);
    if (!types.bf16) are_bf16 = false;
    if (!types.f16) are_f16 = false;
  });
  return are_bf16 ? DType::kBF16 : are_f16 ? DType::kF16 : DType::kF32;
}

// --- writing -------------------------------------------------------------------------------------

// Writes those of an output, number `lane` of a panel.
class FactorWriter {
 public:
  FactorWriter(const CodedMatrix& matrix, int64_t panel, std::byte* data)
      : matrix_(matrix), to_(matrix, panel, data) {}

  void Write(const CodedRow& row, size_t lane) const {
    if (row.part->blocks() != nullptr) return WriteBlocks(row, lane);
    // The numbers of unsigned codes are 128 less.
    const bool is_unsigned =
        matrix_.kind == CodeKind::kInt8 && row.part->quantized()->numbers == UnsignedNumbers();
    const float shift = is_unsigned ? 128.0f : 0.0f;
    const bool has_e4m3_steps = matrix_.steps != ScaleSteps::kNone;
    if (has_e4m3_steps) {
      WriteFactor(row.part->quantized()->global_scale, lane, to_.scales + matrix_.step_bytes());
    }
    for (int64_t group = 0; group < matrix_.num_groups(); ++group) {
      const size_t at = IndexOf(group, lane);
      const int64_t stored = FirstGroup(*row.part) + group;
      if (has_e4m3_steps) {
        to_.scales[at] = *row.part->StoredScale(row.out, stored);
      } else {
        WriteFactor(row.part->ScaleOf(row.out, stored), at, to_.scales);
      }
      if (!matrix_.has_zeros) continue;
      const float zero = row.part->ZeroOf(row.out, stored) - shift;
      to_.zeros[at] = static_cast<std::byte>(static_cast<int8_t>(zero));
    }
  }

 private:
  static size_t IndexOf(int64_t group, size_t lane) {
    return static_cast<size_t>(group * kPanelWidth) + lane;
  }

  // Writes the factors of a row of blocks; its codes have no zeros.
  void WriteBlocks(const CodedRow& row, size_t lane) const {
    const BlockFormat& format = *row.part->blocks();
    const int64_t first = FirstGroup(*row.part), num_groups = matrix_.num_groups();
    const std::byte* from = row.part->BlockOf(row.out, first);
    const bool has_factor = format.codes.has_e4m3_steps;
    if (has_factor) {
      WriteFactor(row.part->quantized()->global_scale, lane, to_.scales + matrix_.step_bytes());
    }
    for (int64_t group = 0, block = 0; group < num_groups;
         group += format.num_groups(), ++block, from += format.block_bytes) {
      if (!has_factor) WriteBlock(format, from, IndexOf(block, lane));
      if (format.codes.read_steps == nullptr) continue;
      int8_t scales[kBlockGroupsMax], offsets[kBlockGroupsMax];
      format.codes.read_steps(from, scales, offsets);
      // A cut within a group does not begin with the block.
      const int64_t skipped = (first + group) % format.num_groups();
      const int64_t count = std::min(format.num_groups() - skipped, num_groups - group);
      for (int64_t i = 0; i < count; ++i) {
        const size_t at = IndexOf(group + i, lane);
        to_.scales[at] = static_cast<std::byte>(scales[skipped + i]);
        if (matrix_.has_offsets) to_.offsets[at] = static_cast<std::byte>(offsets[skipped + i]);
      }
    }
  }

  // Writes the factors of a block.
  void WriteBlock(const BlockFormat& format, const std::byte* block, size_t at) const {
    std::byte* const scales = to_.scales + matrix_.step_bytes();
    std::byte* const offsets = to_.offsets + matrix_.step_bytes();
    if (matrix_.scale_type == DType::kF16 && format.has_f16_scales()) {
      Store(format.ScaleBits(block), at, scales);
      if (matrix_.has_offsets) Store(format.OffsetBits(block), at, offsets);
      return;
    }
    WriteFactor(format.ScaleOf(block), at, scales);
    if (matrix_.has_offsets) WriteFactor(format.OffsetOf(block), at, offsets);
  }

  // Element `at` of scales or offsets, in the matrix's type.
  void WriteFactor(float factor, size_t at, std::byte* to) const {
    if (matrix_.scale_type == DType::kF32) return Store(factor, at, to);
    Store(matrix_.scale_type == DType::kBF16 ? FloatToBf16(factor) : FloatToF16(factor), at, to);
  }

  template <typename T>
  static void Store(T value, size_t at, std::byte* to) {
    std::memcpy(to + at * sizeof(value), &value, sizeof(value));
  }

  const CodedMatrix& matrix_;
  const PanelFactors to_;
};

}  // namespace

std::span<const CodedRow> RowsOfPanel(std::span<const CodedRow> rows, int64_t panel) {
  const auto begin = static_cast<size_t>(panel * kPanelWidth);
  return rows.subspan(begin, std::min(static_cast<size_t>(kPanelWidth), rows.size() - begin));
}

int64_t FirstGroup(const WeightTensor& part) {
  return part.first_input() / part.quantized()->group_inputs;
}

int64_t BlockFactorGroups(const WeightTensor& part) {
  const BlockFormat* const blocks = part.blocks();
  if (blocks == nullptr || blocks->codes.read_steps == nullptr) return 0;
  return blocks->codes.has_e4m3_steps ? 0 : blocks->num_groups();
}

void ChooseScaleForm(std::span<const WeightTensor> parts, std::span<const CodedRow> rows,
                     ThreadPool* pool, CodedMatrix* matrix) {
  matrix->steps = StepsOf(parts);
  switch (matrix->steps) {
    case ScaleSteps::kNone:
      matrix->factor_groups = 0;
      break;
    case ScaleSteps::kIntegers:
      matrix->factor_groups = BlockFactorGroups(parts[0]);
      break;
    case ScaleSteps::kE4M3:
    case ScaleSteps::kE4M3Divided:
      // The global scale of a part is the factor of all groups of its outputs.
      matrix->factor_groups =
          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(matrix->num_groups())));
      matrix->scale_type = DType::kF32;
      return;
  }
  matrix->scale_type = ScaleType(rows, *matrix, pool);
}

void WriteFactors(const CodedRow& row, const CodedMatrix& matrix, int64_t panel, size_t lane,
                  std::byte* data) {
  FactorWriter(matrix, panel, data).Write(row, lane);
}

}  // namespace minisgl::cpu
