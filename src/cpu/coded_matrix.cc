// See coded_matrix.h.
#include "cpu/coded_matrix.h"

#include <algorithm>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/load_bytes.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kQuadTileBytes = 16 * kPanelWidth * kQuadInputs;

// The place of the upper bits of the code of an input in the unit's word.
int UpperShift(int64_t input) {
  const int64_t k = input % kUnitInputs;
  return static_cast<int>(k % 8 / 2 * 8 + k / 8 * 4 + k % 2 * 2);
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

}  // namespace

int64_t CodedMatrix::panel_bytes() const {
  if (order == CodeOrder::kLines) return CeilDiv(num_in, kLineInputs) * kPanelWidth * line_bytes();
  if (order == CodeOrder::kQuads || order == CodeOrder::kSplitQuads) {
    return CeilDiv(num_in, 16 * kQuadInputs) * kQuadTileBytes;
  }
  if (order == CodeOrder::kBlocks) {
    return num_in / blocks->block_elements * kPanelWidth * blocks->block_bytes;
  }
  constexpr int64_t kUnitBytes = kUnitWords * kPanelWidth * int64_t{sizeof(uint32_t)};
  if (has_6_bits()) return CeilDiv(num_in, kUnitInputs) * kUnitBytes;
  if (!has_4_bits()) return num_in * kPanelWidth;
  return CeilDiv(num_in, kWordInputs) * kPanelWidth * static_cast<int64_t>(sizeof(uint32_t));
}

int64_t CodedMatrix::scale_bytes() const {
  const int64_t num_factors =
      steps == ScaleSteps::kNone ? num_groups() : CeilDiv(num_groups(), factor_groups);
  return step_bytes() + num_factors * kPanelWidth * static_cast<int64_t>(DTypeBytes(scale_type));
}

size_t CodedMatrix::num_bytes() const {
  if (order == CodeOrder::kBlocks) return static_cast<size_t>(num_panels() * panel_bytes());
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
  if (order == CodeOrder::kQuads || order == CodeOrder::kSplitQuads) {
    const int64_t quad = input / kQuadInputs * kPanelWidth + lane;
    const bool is_split = order == CodeOrder::kSplitQuads;
    const int64_t place = is_split ? SplitQuadPlace(input) : input % kQuadInputs;
    return static_cast<uint8_t>(from[quad * kQuadInputs + place]);
  }
  if (has_6_bits()) {
    const std::byte* const unit =
        from + input / kUnitInputs * kUnitWords * kPanelWidth * int64_t{sizeof(uint32_t)};
    const auto word = [&](int64_t i) {
      return LoadBytes<uint32_t>(unit + (i * kPanelWidth + lane) * int64_t{sizeof(uint32_t)});
    };
    const uint32_t lower = word(input % kUnitInputs / 8) >> 4 * (input % 8) & 15;
    const uint32_t upper = word(2) >> UpperShift(input) & 3;
    return static_cast<uint8_t>(lower | upper << 4);
  }
  if (!has_4_bits()) return static_cast<uint8_t>(from[input * kPanelWidth + lane]);
  const int64_t word = input / kWordInputs * kPanelWidth + lane, k = input % kWordInputs;
  return static_cast<uint8_t>(from[word * 4 + k / 2]) >> k % 2 * 4 & 0xF;
}

float CodedMatrix::FactorAt(const std::byte* of_panel, int64_t group, int64_t lane) const {
  const int64_t of_factor = steps == ScaleSteps::kNone ? group : group / factor_groups;
  const std::byte* const from =
      of_panel + step_bytes() +
      (of_factor * kPanelWidth + lane) * static_cast<int64_t>(DTypeBytes(scale_type));
  const float factor = scale_type == DType::kF32    ? LoadBytes<float>(from)
                       : scale_type == DType::kBF16 ? Bf16ToFloat(LoadBytes<uint16_t>(from))
                                                    : F16ToFloat(LoadBytes<uint16_t>(from));
  if (steps == ScaleSteps::kNone) return factor;
  const std::byte step = of_panel[group * kPanelWidth + lane];
  const float number = steps == ScaleSteps::kIntegers ? static_cast<int8_t>(step)
                                                      : E4M3ToFloat(static_cast<uint8_t>(step));
  return steps == ScaleSteps::kE4M3Divided ? number / factor : number * factor;
}

void CodedMatrix::ReadRow(int64_t out, float* row) const {
  const int64_t panel = out / kPanelWidth, lane = out % kPanelWidth;
  if (order == CodeOrder::kBlocks) {
    const std::byte* block = codes(panel) + lane * blocks->block_bytes;
    for (int64_t in = 0; in < num_in; in += blocks->block_elements) {
      blocks->Unpack(block, row + in);
      block += kPanelWidth * blocks->block_bytes;
    }
    return;
  }
  const auto number_of = [this](uint8_t code) {
    if (has_4_bits()) return numbers[code];
    if (has_6_bits()) return numbers[0] + static_cast<float>(code);
    return kind == CodeKind::kE4M3 ? E4M3ToFloat(code) : SignedNumbers()[code];
  };
  for (int64_t group = 0; group < num_groups(); ++group) {
    const float scale = FactorAt(scales(panel), group, lane);
    const float zero = has_zeros ? zeros(panel)[group * kPanelWidth + lane] : 0.0f;
    const float offset = has_offsets ? FactorAt(offsets(panel), group, lane) : 0.0f;
    const int64_t end = std::min(num_in, (group + 1) * group_inputs);
    for (int64_t i = group * group_inputs; i < end; ++i) {
      const float number = number_of(CodeAt(out, i));
      row[i] = has_offsets ? number * scale + offset : (number - zero) * scale;
    }
  }
}

}  // namespace minisgl::cpu
