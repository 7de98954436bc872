// See code_form.h.
#include "minisgl/tensor/code_form.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "minisgl/base/check.h"
#include "minisgl/base/load_bytes.h"
#include "minisgl/tensor/tensor_view.h"
#include "tensor/quantize.h"

namespace minisgl {
namespace {

// Turns an unsigned code into one of two's complement that is 128 less.
constexpr uint8_t kSignFlip = 0x80;

int64_t FirstGroup(const WeightTensor& part) {
  return part.first_input() / part.quantized()->group_inputs;
}

// Why a matrix is not kept as codes; "": it is.
const char* FaultOf(const WeightTensor& part) {
  if (part.quantized() == nullptr) {
    return part.is_dense() ? "they are stored without codes" : "their inputs are permuted";
  }
  if (part.quantized()->group_index != nullptr) return "their inputs are in activation order";
  if (!part.HasWholeGroups()) return "ranks cut their groups";
  const int64_t group = std::min(part.quantized()->group_inputs, part.num_in());
  if (group % 8 != 0 && group < part.num_in()) return "their groups are no multiples of 8 inputs";
  return "";
}

// --- the form of a part --------------------------------------------------------------------------

void SetCodesOfBlocks(const BlockCodes& codes, CodeForm* form) {
  if (codes.bits == 4 || codes.few_numbers != nullptr) {
    form->codes = RowCodes::kTable4;
    std::copy_n(codes.bits == 4 ? codes.numbers() : codes.few_numbers(), 16, form->numbers.begin());
  } else if (codes.fit_6_bits) {
    form->codes = RowCodes::kInt6;
    form->numbers[0] = codes.offset == BlockOffset::kNone ? -32.0f : 0.0f;
  }
}

CodeForm FormOfBlocks(const WeightTensor& part, CodeForm form) {
  const BlockFormat& format = *part.blocks();
  SetCodesOfBlocks(format.codes, &form);
  form.has_offsets = part.has_offsets();
  form.adds_zero = format.codes.numbers() == E2M1Numbers() && !form.has_offsets;
  if (format.codes.has_e4m3_steps) {
    form.scales = GroupScales::kE4M3Steps;
  } else if (format.has_f16_scales()) {
    form.scale_type = DType::kF16;
  } else if (format.scale_at[0] < 0 && format.read_scale == nullptr) {
    form.scale_type = DType::kE8M0;
  }
  if (format.codes.read_steps != nullptr && !format.codes.has_e4m3_steps) {
    form.scales = GroupScales::kSteps;
    form.base_groups = format.num_groups();
  }
  return form;
}

CodeForm FormOfPlanes(const QuantizedWeights& its, CodeForm form) {
  if (its.codes.bits == 4) {
    form.codes = RowCodes::kTable4;
    std::copy_n(its.numbers, 16, form.numbers.begin());
  } else if (its.numbers == E4M3Numbers()) {
    form.codes = RowCodes::kE4M3;
  }
  // Unsigned bytes are stored 128 less.
  form.has_zeros =
      its.zeros.data != nullptr || (its.codes.bits == 8 && its.numbers == UnsignedNumbers());
  const bool has_global = its.global_scale != 1;
  if (its.scales.dtype == DType::kE4M3) {
    form.scales = its.divides_by_global ? GroupScales::kE4M3Divided : GroupScales::kE4M3Steps;
  } else if (!has_global && (its.scales.dtype == DType::kBF16 || its.scales.dtype == DType::kF16 ||
                             its.scales.dtype == DType::kE8M0)) {
    form.scale_type = its.scales.dtype;
  }
  return form;
}

CodeForm FormOf(const WeightTensor& part) {
  const QuantizedWeights& its = *part.quantized();
  CodeForm form;
  form.group_inputs = std::min(its.group_inputs, part.num_in());
  return part.blocks() != nullptr ? FormOfBlocks(part, form) : FormOfPlanes(its, form);
}

// The form of parts of two forms, which differ in the type of scales at most.
std::optional<CodeForm> Join(const CodeForm& a, CodeForm b) {
  const DType type = a.scale_type == b.scale_type ? a.scale_type : DType::kF32;
  b.has_zeros = b.has_zeros || (a.has_zeros && !b.has_offsets);
  CodeForm joined = a;
  joined.has_zeros = b.has_zeros;
  joined.scale_type = b.scale_type = type;
  if (joined != b) return std::nullopt;
  return joined;
}

// --- numbers -------------------------------------------------------------------------------------

void Append(float value, DType type, std::vector<std::byte>* to) {
  const auto append = [to](const auto& number) {
    const size_t at = to->size();
    to->resize(at + sizeof(number));
    std::memcpy(to->data() + at, &number, sizeof(number));
  };
  switch (type) {
    case DType::kF32:
      return append(value);
    case DType::kF16:
      return append(FloatToF16(value));
    case DType::kBF16:
      return append(FloatToBf16(value));
    default:  // e8m0: the exponent; of 2^-127 it is 0
      append(static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 23));
  }
}

float NumberAt(const std::vector<std::byte>& from, int64_t index, DType type) {
  const std::byte* const at = from.data() + index * static_cast<int64_t>(DTypeBytes(type));
  return TensorView{at, type, {}}.At(0);
}

void ReadBlockScales(const WeightTensor& part, int64_t out, const CodeForm& form, RowScales* row) {
  const BlockFormat& format = *part.blocks();
  const int64_t first = FirstGroup(part), num_groups = form.num_groups(part.num_in());
  if (format.codes.has_e4m3_steps) Append(part.quantized()->global_scale, DType::kF32, &row->bases);
  for (int64_t group = 0; group < num_groups;) {
    const std::byte* const block = part.BlockOf(out, first + group);
    const bool has_bases = form.scales == GroupScales::kSteps;
    if (form.scales == GroupScales::kStored || has_bases) {
      Append(format.ScaleOf(block), form.scale_type, has_bases ? &row->bases : &row->scales);
      if (form.has_offsets) {
        Append(format.OffsetOf(block), form.scale_type,
               has_bases ? &row->offset_bases : &row->offsets);
      }
    }
    // A cut within a group does not begin with the block.
    const int64_t skipped = (first + group) % format.num_groups();
    const int64_t count = std::min(format.num_groups() - skipped, num_groups - group);
    group += count;
    if (format.codes.read_steps == nullptr) continue;
    int8_t scales[kBlockGroupsMax], offsets[kBlockGroupsMax];
    format.codes.read_steps(block, scales, offsets);
    for (int64_t i = skipped; i < skipped + count; ++i) {
      row->scales.push_back(static_cast<std::byte>(scales[i]));
      if (form.has_offsets) row->offsets.push_back(static_cast<std::byte>(offsets[i]));
    }
  }
}

void ReadPlaneScales(const WeightTensor& part, int64_t out, const CodeForm& form, RowScales* row) {
  const QuantizedWeights& its = *part.quantized();
  const bool has_steps = form.scales != GroupScales::kStored;
  if (has_steps) Append(its.global_scale, DType::kF32, &row->bases);
  // The numbers of unsigned codes are 128 less.
  const bool is_unsigned = form.codes == RowCodes::kInt8 && its.numbers == UnsignedNumbers();
  for (int64_t group = 0; group < form.num_groups(part.num_in()); ++group) {
    const int64_t stored = FirstGroup(part) + group;
    if (has_steps) {
      row->scales.push_back(*part.StoredScale(out, stored));
    } else if (form.scale_type == DType::kE8M0) {  // as it is: also what is no number
      row->scales.push_back(*part.StoredScale(out, stored));
    } else {
      Append(part.ScaleOf(out, stored), form.scale_type, &row->scales);
    }
    if (!form.has_zeros) continue;
    const float zero = part.ZeroOf(out, stored) - (is_unsigned ? 128.0f : 0.0f);
    row->zeros.push_back(static_cast<int8_t>(zero));
  }
}

}  // namespace

// --- sizes ---------------------------------------------------------------------------------------

int64_t CodeForm::num_bases(int64_t num_in) const {
  switch (scales) {
    case GroupScales::kStored:
      return 0;
    case GroupScales::kSteps:
      return (num_groups(num_in) + base_groups - 1) / base_groups;
    default:
      return 1;
  }
}

int64_t CodeForm::scale_bytes(int64_t num_in) const {
  const size_t width = scales == GroupScales::kStored ? DTypeBytes(scale_type) : 1;
  return num_groups(num_in) * static_cast<int64_t>(width);
}

int64_t CodeForm::row_bytes(int64_t num_in) const {
  const int64_t factors = scale_bytes(num_in) + base_bytes(num_in);
  return code_bytes(num_in) + upper_bytes(num_in) + zero_bytes(num_in) +
         (has_offsets ? 2 : 1) * factors;
}

// --- choosing ------------------------------------------------------------------------------------

std::optional<std::vector<CodedParts>> FormsOf(std::span<const WeightTensor> parts,
                                               std::string* why) {
  std::vector<CodedParts> runs;
  for (size_t i = 0; i < parts.size(); ++i) {
    *why = FaultOf(parts[i]);
    if (!why->empty()) return std::nullopt;
    const CodeForm form = FormOf(parts[i]);
    const auto joined = runs.empty() ? std::nullopt : Join(runs.back().form, form);
    if (joined) {
      runs.back().form = *joined;
      ++runs.back().count;
    } else {
      runs.push_back({form, i, 1});
    }
  }
  return runs;
}

CodeForm FormOfQuantized(Quantization quantization, int64_t num_in) {
  MINISGL_CHECK(quantization == Quantization::kInt8 || quantization == Quantization::kInt4,
                "weights that are not quantized");
  CodeForm form;
  form.scale_type = DType::kBF16;
  form.group_inputs = std::min(kQuantBlock, num_in);
  if (quantization == Quantization::kInt4) {
    form.codes = RowCodes::kTable4;
    std::copy_n(OffsetNumbers(4), form.numbers.size(), form.numbers.begin());
  }
  return form;
}

// --- rows ----------------------------------------------------------------------------------------

void ReadFormCodes(const WeightTensor& part, int64_t out, const CodeForm& form, uint8_t* codes) {
  part.ReadCodes(out, codes);
  const QuantizedWeights& its = *part.quantized();
  const int64_t count = part.num_in();
  if (form.codes == RowCodes::kInt8 && its.numbers != SignedNumbers()) {
    for (int64_t i = 0; i < count; ++i) codes[i] ^= kSignFlip;
  } else if (form.codes == RowCodes::kInt6) {
    const auto first = static_cast<uint8_t>(static_cast<int8_t>(form.numbers[0]));
    for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(codes[i] - first);
  } else if (form.codes == RowCodes::kTable4 && its.codes.bits == 8) {
    std::array<uint8_t, 256> place = {};
    for (size_t i = form.numbers.size(); i-- > 0;) {
      place[static_cast<uint8_t>(static_cast<int8_t>(form.numbers[i]))] = static_cast<uint8_t>(i);
    }
    for (int64_t i = 0; i < count; ++i) codes[i] = place[codes[i]];
  }
}

void ReadFormScales(const WeightTensor& part, int64_t out, const CodeForm& form, RowScales* row) {
  *row = RowScales();
  if (part.blocks() == nullptr) return ReadPlaneScales(part, out, form, row);
  ReadBlockScales(part, out, form, row);
  // Parts beside it have zero points.
  if (form.has_zeros) row->zeros.assign(static_cast<size_t>(form.num_groups(part.num_in())), 0);
}

void QuantizeFormRow(const WeightTensor& part, int64_t out, const CodeForm& form, uint8_t* codes,
                     RowScales* row) {
  *row = RowScales();
  std::vector<float> weights(static_cast<size_t>(part.num_in()));
  part.ReadRow(out, weights.data());
  const bool is_int4 = form.codes == RowCodes::kTable4;
  const auto quantize = is_int4 ? tensor::QuantizeWeightsInt4 : tensor::QuantizeWeights;
  for (int64_t first = 0; first < part.num_in(); first += form.group_inputs) {
    const int64_t count = std::min(form.group_inputs, part.num_in() - first);
    int8_t q[kQuantBlock];
    const uint16_t scale = quantize(weights.data() + first, count, q);
    for (int64_t i = 0; i < count; ++i) {
      codes[first + i] = static_cast<uint8_t>(q[i] + (is_int4 ? 8 : 0));
    }
    row->scales.push_back(static_cast<std::byte>(scale & 0xFF));
    row->scales.push_back(static_cast<std::byte>(scale >> 8));
  }
}

void ReadFormRow(const CodeForm& form, const uint8_t* codes, const RowScales& scales,
                 int64_t num_in, float* row) {
  const auto factor_of = [&](const std::vector<std::byte>& steps,
                             const std::vector<std::byte>& bases, int64_t group) {
    if (form.scales == GroupScales::kStored) return NumberAt(steps, group, form.scale_type);
    const auto step = static_cast<uint8_t>(steps[static_cast<size_t>(group)]);
    if (form.scales == GroupScales::kSteps) {
      return NumberAt(bases, group / form.base_groups, form.scale_type) * static_cast<int8_t>(step);
    }
    const float base = NumberAt(bases, 0, form.scale_type), number = E4M3ToFloat(step);
    return form.scales == GroupScales::kE4M3Divided ? number / base : number * base;
  };
  for (int64_t i = 0; i < num_in; ++i) {
    const int64_t group = i / form.group_inputs;
    float number = 0;
    switch (form.codes) {
      case RowCodes::kTable4:
        number = form.numbers[codes[i]];
        break;
      case RowCodes::kInt6:
        number = form.numbers[0] + static_cast<float>(codes[i]);
        break;
      case RowCodes::kInt8:
        number = static_cast<int8_t>(codes[i]);
        break;
      case RowCodes::kE4M3:
        number = E4M3ToFloat(codes[i]);
    }
    if (form.has_zeros) number -= scales.zeros[static_cast<size_t>(group)];
    float weight = number * factor_of(scales.scales, scales.bases, group);
    if (form.has_offsets) weight += factor_of(scales.offsets, scales.offset_bases, group);
    if (form.adds_zero) weight += 0.0f;
    row[i] = weight;
  }
}

}  // namespace minisgl
