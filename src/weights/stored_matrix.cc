// See stored_matrix.h. Each layout is one function, which states the tensors and the formula; the
// packages that define them are named beside it. Shapes: N outputs, K inputs, G groups of inputs.
#include "weights/stored_matrix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"
#include "weights/stored_names.h"
#include "weights/stored_parts.h"

namespace minisgl::weights {
namespace {

constexpr int64_t kWordBytes = 4, kWordBits = 32;

// The sizes of one matrix. `inputs_first`: a stack is stored [in, out], where files differ in it.
struct Sizes {
  int64_t num_out = 0, num_in = 0;
  bool inputs_first = false;
};

int64_t NumGroups(const QuantScheme& scheme, int64_t num_in) {
  return scheme.group_inputs == 0 ? 1 : CeilDiv(num_in, scheme.group_inputs);
}

// Sets the groups of inputs. Fails if `whole` and they do not divide the inputs.
void SetGroups(const QuantScheme& scheme, const Sizes& sizes, bool whole, Parts* parts,
               QuantizedWeights* weights) {
  weights->num_groups = NumGroups(scheme, sizes.num_in);
  weights->group_inputs = scheme.group_inputs == 0 ? sizes.num_in : scheme.group_inputs;
  if (!whole || sizes.num_in % weights->group_inputs == 0) return;
  parts->Fail(BadInput("groups of {} do not divide the {} inputs of a matrix", scheme.group_inputs,
                       sizes.num_in));
}

// Codes in rows of `row_bytes`, in order.
CodePlane CodesInRows(const TensorView& view, int32_t bits, int64_t row_bytes) {
  CodePlane codes;
  codes.data = view.data;
  codes.bits = bits;
  codes.other_step = row_bytes;
  return codes;
}

// Scales [outputs / group_outputs, G], row by row.
ScalePlane ScalesInRows(const TensorView& view, DType dtype, int64_t group_outputs,
                        int64_t num_groups) {
  const auto width = static_cast<int64_t>(DTypeBytes(view.dtype));
  return {view.data, dtype, group_outputs, num_groups * width, width};
}

// --- 8-bit floats and integers -------------------------------------------------------------------

// A fixed scale is input_scale [] or [1] (modelopt, compressed-tensors, transformers' fp8). Without
// one that can be used the inputs are not rounded: engines need not round them.
void SetE4M3Inputs(const QuantScheme& scheme, const Parts& parts, QuantizedWeights* weights) {
  if (scheme.e4m3_inputs == InputRounding::kTensor) {
    const std::optional<float> scale = parts.FindNumber(".input_scale");
    if (!scale || !std::isnormal(*scale) || *scale < 0) return;
    weights->input_scale = *scale;
  }
  weights->e4m3_inputs = scheme.e4m3_inputs;
}

// weight [N, K] of one byte, and scales: of the matrix [] or [1], of outputs [N] or [N, 1], of
// groups [N, G], or of blocks [ceil(N / b), ceil(K / b)] (modelopt: [.., 1, .., 1]).
// weight = code * scale (transformers' finegrained fp8: weight_scale_inv, which multiplies in spite
// of its name; compressed-tensors; modelopt).
void ReadBytes(const QuantScheme& scheme, const Sizes& sizes, DType type, Parts* parts,
               QuantizedWeights* weights) {
  const TensorView codes = parts->Take(".weight", {type}, {{sizes.num_out, sizes.num_in}});
  weights->codes = CodesInRows(codes, 8, sizes.num_in);
  weights->numbers = type == DType::kE4M3 ? E4M3Numbers() : SignedNumbers();
  weights->int8_inputs = scheme.int8_inputs;
  SetE4M3Inputs(scheme, *parts, weights);
  SetGroups(scheme, sizes, /*whole=*/scheme.group_outputs == 1, parts, weights);
  const char* const suffix =
      parts->Has(".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
  const int64_t group_outputs = scheme.group_outputs == 0 ? sizes.num_out : scheme.group_outputs;
  const int64_t rows = CeilDiv(sizes.num_out, group_outputs), groups = weights->num_groups;
  TensorView scales;
  if (scheme.group_outputs == 0) {
    scales = parts->Take(suffix, {DType::kF32, DType::kBF16, DType::kF16},
                         {Shape{}, Shape{1}, Shape{1, 1}});
  } else if (groups == 1 && group_outputs == 1) {
    scales = parts->Take(suffix, {DType::kF32, DType::kBF16, DType::kF16}, {{rows, 1}, {rows}});
  } else {
    // Powers of two may be stored as their exponents.
    scales = parts->Take(suffix, {DType::kF32, DType::kBF16, DType::kF16, DType::kE8M0, DType::kU8},
                         {{rows, groups}, {rows, 1, groups, 1}});
  }
  const DType scale_type = scales.dtype == DType::kU8 ? DType::kE8M0 : scales.dtype;
  weights->scales = ScalesInRows(scales, scale_type, group_outputs, groups);
  if (!scheme.has_zeros) return;
  // A zero point for the matrix is one number. Zero points of outputs are a column, which may lack
  // its second axis.
  const bool of_matrix = scheme.group_outputs == 0;
  const Shape second = of_matrix ? Shape{} : groups == 1 ? Shape{rows} : Shape{rows, groups};
  const TensorView zeros = parts->Take(".weight_zero_point", {DType::kI8},
                                       {of_matrix ? Shape{1} : Shape{rows, groups}, second});
  weights->zeros = CodesInRows(zeros, 8, of_matrix ? 0 : groups);
}

// weight [N, K] e4m3, weight_scale [N, K / 32] e8m0. weight = code * scale.
void ReadMxfp8(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
               QuantizedWeights* weights) {
  const TensorView codes = parts->Take(".weight", {DType::kE4M3}, {{sizes.num_out, sizes.num_in}});
  weights->codes = CodesInRows(codes, 8, sizes.num_in);
  weights->numbers = E4M3Numbers();
  SetGroups(scheme, sizes, /*whole=*/true, parts, weights);
  const TensorView scales = parts->Take(".weight_scale", {DType::kU8, DType::kE8M0},
                                        {{sizes.num_out, weights->num_groups}});
  weights->scales = ScalesInRows(scales, DType::kE8M0, 1, weights->num_groups);
}

// --- integers of 4 or 8 bits ---------------------------------------------------------------------

// compressed-tensors: weight_packed [N, ceil(K b / 32)] i32, a code is the weight + 2^(b - 1), the
// first in the lowest bits; weight_scale [N, G]; weight_zero_point [ceil(N b / 32), G] i32, packed
// along the outputs; weight_g_idx [K] i32, the group of each input. weight = (code - zero) * scale.
void ReadPackedInt(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
                   QuantizedWeights* weights) {
  const int64_t words = CeilDiv(sizes.num_in * scheme.bits, kWordBits);
  const TensorView codes = parts->Take(".weight_packed", {DType::kI32}, {{sizes.num_out, words}});
  weights->codes = CodesInRows(codes, scheme.bits, words * kWordBytes);
  weights->numbers = OffsetNumbers(scheme.bits);
  SetGroups(scheme, sizes, /*whole=*/true, parts, weights);
  const int64_t groups = weights->num_groups;
  const bool of_matrix = scheme.group_outputs == 0;
  const int64_t rows = of_matrix ? 1 : sizes.num_out;
  const TensorView scales = parts->Take(".weight_scale", {DType::kF32, DType::kBF16, DType::kF16},
                                        {{rows, groups}, {rows * groups}});
  weights->scales = ScalesInRows(scales, scales.dtype, of_matrix ? sizes.num_out : 1, groups);
  if (parts->Has(".weight_shape")) {
    // The shape of a stack may have the number of experts first.
    std::vector<Shape> shapes = {Shape{2}};
    if (parts->is_stack()) shapes.push_back(Shape{3});
    const TensorView shape = parts->TakeWhole(".weight_shape", {DType::kI64, DType::kI32}, shapes);
    const int64_t last = shape.shape.empty() ? 1 : shape.shape[0] - 1;
    if (parts->status().ok() && (shape.At(last - 1) != static_cast<float>(sizes.num_out) ||
                                 shape.At(last) != static_cast<float>(sizes.num_in))) {
      parts->Refuse(".weight_shape",
                    fmt::format("it says [{}, {}]; wanted [{}, {}]", shape.At(last - 1),
                                shape.At(last), sizes.num_out, sizes.num_in));
    }
  }
  if (scheme.has_zeros) {
    const int64_t zero_words = CeilDiv(sizes.num_out * scheme.bits, kWordBits);
    const TensorView zeros =
        parts->Take(".weight_zero_point", {DType::kI32}, {{zero_words, groups}});
    weights->zeros.data = zeros.data;
    weights->zeros.bits = scheme.bits;
    weights->zeros.packed = CodePlane::Packed::kAlongOutputs;
    weights->zeros.word_step = groups * kWordBytes;
    weights->zeros.other_step = kWordBytes;
  }
  if (scheme.has_order) {
    weights->group_index = parts->Take(".weight_g_idx", {DType::kI32}, {{sizes.num_in}}).data;
  }
}

// gptqmodel, auto-gptq: qweight [K b / 32, N] i32, packed along the inputs; qzeros [G, N b / 32],
// packed along the outputs, one less than the zero in files of the first version; scales [G, N];
// g_idx [K], the group of each input, which counts only with desc_act.
// weight = (code - zero) * scale.
void ReadGptq(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
              QuantizedWeights* weights) {
  const int64_t per_word = kWordBits / scheme.bits;
  const TensorView codes =
      parts->Take(".qweight", {DType::kI32}, {{CeilDiv(sizes.num_in, per_word), sizes.num_out}});
  weights->codes.data = codes.data;
  weights->codes.bits = scheme.bits;
  weights->codes.word_step = sizes.num_out * kWordBytes;
  weights->codes.other_step = kWordBytes;
  weights->numbers = UnsignedNumbers();
  SetGroups(scheme, sizes, /*whole=*/false, parts, weights);
  const int64_t groups = weights->num_groups;
  const auto zero_words = CeilDiv(sizes.num_out, per_word);
  const TensorView zeros = parts->Take(".qzeros", {DType::kI32}, {{groups, zero_words}});
  weights->zeros.data = zeros.data;
  weights->zeros.bits = scheme.bits;
  weights->zeros.packed = CodePlane::Packed::kAlongOutputs;
  weights->zeros.word_step = kWordBytes;
  weights->zeros.other_step = zero_words * kWordBytes;
  weights->zero_offset = scheme.zeros_minus_one ? 1 : 0;
  const TensorView scales =
      parts->Take(".scales", {DType::kF16, DType::kBF16, DType::kF32}, {{groups, sizes.num_out}});
  const auto width = static_cast<int64_t>(DTypeBytes(scales.dtype));
  weights->scales = {scales.data, scales.dtype, 1, width, sizes.num_out * width};
  if (!scheme.has_order && !parts->Has(".g_idx")) return;
  const TensorView order = parts->Take(".g_idx", {DType::kI32}, {{sizes.num_in}});
  if (scheme.has_order) weights->group_index = order.data;
  if (scheme.has_order || !parts->status().ok()) return;
  // Without desc_act it has the groups in order, or nothing.
  bool is_order = true, is_nothing = true;
  for (int64_t in = 0; in < sizes.num_in; ++in) {
    is_order &= order.At(in) == static_cast<float>(in / weights->group_inputs);
    is_nothing &= order.At(in) == 0;
  }
  if (!is_order && !is_nothing) {
    parts->Refuse(".g_idx", "its groups are out of order, but desc_act is not true");
  }
}

// autoawq, "gemm": qweight [K, N / 8] i32, packed along the outputs, output j of eight at the place
// order[j]; qzeros [G, N / 8] in the same order; scales [G, N]. weight = (code - zero) * scale.
void ReadAwq(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
             QuantizedWeights* weights) {
  constexpr std::array<uint8_t, 8> kOrder = {0, 4, 1, 5, 2, 6, 3, 7};
  constexpr int64_t kPerWord = 8;
  if (sizes.num_out % kPerWord != 0) {
    parts->Refuse(".qweight", fmt::format("{} outputs are no multiple of 8", sizes.num_out));
  }
  const int64_t words = sizes.num_out / kPerWord;
  const TensorView codes = parts->Take(".qweight", {DType::kI32}, {{sizes.num_in, words}});
  weights->codes.data = codes.data;
  weights->codes.bits = 4;
  weights->codes.packed = CodePlane::Packed::kAlongOutputs;
  weights->codes.word_step = kWordBytes;
  weights->codes.other_step = words * kWordBytes;
  weights->codes.order = kOrder;
  weights->numbers = UnsignedNumbers();
  SetGroups(scheme, sizes, /*whole=*/true, parts, weights);
  const int64_t groups = weights->num_groups;
  weights->zeros = weights->codes;
  weights->zeros.data = parts->Take(".qzeros", {DType::kI32}, {{groups, words}}).data;
  const TensorView scales =
      parts->Take(".scales", {DType::kF16, DType::kBF16, DType::kF32}, {{groups, sizes.num_out}});
  const auto width = static_cast<int64_t>(DTypeBytes(scales.dtype));
  weights->scales = {scales.data, scales.dtype, 1, width, sizes.num_out * width};
}

// --- 4-bit floats --------------------------------------------------------------------------------

// Codes e2m1 [N, K / 2] u8, the even input in the low half; scales of 16 inputs e4m3 [N, G], under
// a global one: weight = code * (scale / global) (compressed-tensors: weight_global_scale) or
// code * (scale * global) (modelopt: weight_scale_2). The names of modelopt's stacks have no dots,
// and where dense stacks are [in, out], so are codes [K / 2, N] and scales [G, N].
void ReadNvfp4(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
               QuantizedWeights* weights) {
  const bool divides = scheme.layout == QuantLayout::kNvfp4Packed;
  const bool joined = !divides && parts->Has("_weight_scale");
  const bool inputs_first = joined && sizes.inputs_first;
  const int64_t bytes = CeilDiv<int64_t>(sizes.num_in, 2);
  const auto shape_of = [&](int64_t width) {
    return inputs_first ? Shape{width, sizes.num_out} : Shape{sizes.num_out, width};
  };
  const TensorView codes = parts->Take(divides  ? ".weight_packed"
                                       : joined ? ""
                                                : ".weight",
                                       {DType::kU8}, {shape_of(bytes)});
  weights->codes = CodesInRows(codes, 4, bytes);
  weights->numbers = E2M1Numbers();
  SetGroups(scheme, sizes, /*whole=*/true, parts, weights);
  const TensorView scales = parts->Take(joined ? "_weight_scale" : ".weight_scale", {DType::kE4M3},
                                        {shape_of(weights->num_groups)});
  weights->scales = ScalesInRows(scales, DType::kE4M3, 1, weights->num_groups);
  if (inputs_first) {
    weights->codes.word_bits = 8;
    weights->codes.word_step = sizes.num_out;
    weights->codes.other_step = 1;
    std::swap(weights->scales.output_step, weights->scales.group_step);
    weights->scales.group_step = sizes.num_out;
  }
  weights->global_scale = parts->TakeNumber(divides  ? ".weight_global_scale"
                                            : joined ? "_weight_scale_2"
                                                     : ".weight_scale_2");
  weights->divides_by_global = divides;
}

// compressed-tensors: the same codes, and powers of two of 32 inputs, weight_scale [N, G] e8m0.
// weight = code * scale.
void ReadMxfp4(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
               QuantizedWeights* weights) {
  const TensorView codes = parts->Take(".weight_packed", {DType::kU8},
                                       {{sizes.num_out, CeilDiv<int64_t>(sizes.num_in, 2)}});
  weights->codes = CodesInRows(codes, 4, CeilDiv<int64_t>(sizes.num_in, 2));
  weights->numbers = E2M1Numbers();
  SetGroups(scheme, sizes, /*whole=*/true, parts, weights);
  const TensorView scales = parts->Take(".weight_scale", {DType::kU8, DType::kE8M0},
                                        {{sizes.num_out, weights->num_groups}});
  weights->scales = ScalesInRows(scales, DType::kE8M0, 1, weights->num_groups);
}

// transformers, of all X experts: _blocks [X, N, K / 32, 16] u8, the even input in the low half,
// and _scales [X, N, K / 32] e8m0; X is 1 in the tensors of one. weight = code * scale.
void ReadMxfp4Blocks(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
                     QuantizedWeights* weights) {
  constexpr int64_t kBlockBytes = 16;
  SetGroups(scheme, sizes, /*whole=*/true, parts, weights);
  const int64_t groups = weights->num_groups, row_bytes = groups * kBlockBytes;
  const auto shape_of = [&](Shape shape) {
    if (!parts->is_stack()) shape.insert(shape.begin(), 1);
    return shape;
  };
  const TensorView codes =
      parts->Take("_blocks", {DType::kU8}, {shape_of({sizes.num_out, groups, kBlockBytes})});
  weights->codes = CodesInRows(codes, 4, row_bytes);
  weights->numbers = E2M1Numbers();
  const TensorView scales =
      parts->Take("_scales", {DType::kU8, DType::kE8M0}, {shape_of({sizes.num_out, groups})});
  weights->scales = ScalesInRows(scales, DType::kE8M0, 1, groups);
}

// --- the choice ----------------------------------------------------------------------------------

// True if the tensors whose names begin with `base` are of this layout.
bool IsStoredAs(QuantLayout layout, const Checkpoint& checkpoint, const std::string& base,
                const InStack& stack) {
  const Parts parts(checkpoint, base, stack);
  // The type of `weight` tells apart layouts with the same names.
  const auto weight_is = [&](DType dtype) {
    const Result<TensorView> view = checkpoint.GetStored(base + ".weight");
    return view.ok() && view->dtype == dtype;
  };
  const bool has_scale = parts.Has(".weight_scale") || parts.Has(".weight_scale_inv");
  switch (layout) {
    case QuantLayout::kFp8:
    case QuantLayout::kMxfp8:
      return weight_is(DType::kE4M3);
    case QuantLayout::kInt8:
      return weight_is(DType::kI8);
    case QuantLayout::kNvfp4:
      return (weight_is(DType::kU8) && has_scale) || parts.Has("_weight_scale");
    case QuantLayout::kPackedInt:
    case QuantLayout::kNvfp4Packed:
    case QuantLayout::kMxfp4Packed:
      return parts.Has(".weight_packed");
    case QuantLayout::kGptq:
    case QuantLayout::kAwq:
      return parts.Has(".qweight");
    case QuantLayout::kMxfp4Blocks:
      return parts.Has("_blocks");
    case QuantLayout::kRowBlocks:
      return false;  // Checkpoint::FindMatrix() has those
  }
  return false;
}

void ReadLayout(const QuantScheme& scheme, const Sizes& sizes, Parts* parts,
                QuantizedWeights* weights) {
  switch (scheme.layout) {
    case QuantLayout::kFp8:
      return ReadBytes(scheme, sizes, DType::kE4M3, parts, weights);
    case QuantLayout::kInt8:
      return ReadBytes(scheme, sizes, DType::kI8, parts, weights);
    case QuantLayout::kMxfp8:
      return ReadMxfp8(scheme, sizes, parts, weights);
    case QuantLayout::kPackedInt:
      return ReadPackedInt(scheme, sizes, parts, weights);
    case QuantLayout::kGptq:
      return ReadGptq(scheme, sizes, parts, weights);
    case QuantLayout::kAwq:
      return ReadAwq(scheme, sizes, parts, weights);
    case QuantLayout::kNvfp4Packed:
    case QuantLayout::kNvfp4:
      return ReadNvfp4(scheme, sizes, parts, weights);
    case QuantLayout::kMxfp4Packed:
      return ReadMxfp4(scheme, sizes, parts, weights);
    case QuantLayout::kMxfp4Blocks:
      return ReadMxfp4Blocks(scheme, sizes, parts, weights);
    case QuantLayout::kRowBlocks:
      return;
  }
}

// The matrix in codes of one of the schemes; nullopt if it is in none.
Result<std::optional<StoredMatrix>> FindIn(const QuantizationConfig& config,
                                           const Checkpoint& checkpoint, const std::string& base,
                                           const InStack& stack, const Sizes& sizes) {
  Status first_error;
  std::optional<StoredMatrix> best;
  for (const QuantScheme& scheme : config.schemes) {
    if (!IsStoredAs(scheme.layout, checkpoint, base, stack)) continue;
    Parts parts(checkpoint, base, stack);
    QuantizedWeights weights;
    ReadLayout(scheme, sizes, &parts, &weights);
    if (!parts.status().ok()) {
      if (first_error.ok()) first_error = parts.status();
      continue;
    }
    // Schemes that differ in zero points or orders may fit alike: take the one that reads the most
    // tensors.
    std::vector<std::string> names = parts.TakeNames();
    if (best && best->names.size() >= names.size()) continue;
    best = {WeightTensor(sizes.num_out, sizes.num_in, weights), std::move(names)};
  }
  if (!best && !first_error.ok()) return first_error;
  return best;
}

// The sizes of one matrix of `spec`.
Result<Sizes> SizesOf(const ModelConfig& config, const TensorSpec& spec) {
  Shape shape;
  for (const std::string& symbol : spec.dims) {
    const auto size = SymbolSize(config, symbol, spec.layer);
    // Sizes of packed tensors are computed from these.
    if (!size || *size > int64_t{1} << 40) {
      return BadInput("the configuration's sizes are too large ({})", symbol);
    }
    shape.push_back(*size);
  }
  Sizes sizes = {shape[shape.size() - 2], shape[shape.size() - 1]};
  const bool inputs_first =
      spec.order == TensorOrder::kInputsFirst || spec.order == TensorOrder::kInputsFirstInterleaved;
  if (inputs_first) std::swap(sizes.num_out, sizes.num_in);
  sizes.inputs_first = inputs_first;
  return sizes;
}

// Why there is no dense matrix `name`, if there are codes in its place.
Status ExplainMissing(const ModelConfig& config, const Checkpoint& checkpoint,
                      const std::string& name, const std::string& base) {
  if (checkpoint.Has(name)) return Status();
  for (const char* suffix : {".weight_packed", ".qweight", "_blocks"}) {
    const std::string codes = base + suffix;
    if (!checkpoint.Has(codes)) continue;
    return BadInput("{}: tensor \"{}\" holds codes, but the model {}",
                    Visible(checkpoint.FileOf(codes), 400), Visible(codes, 200),
                    config.quantization.empty()
                        ? "has no quantization_config, which says how to read them"
                        : fmt::format("has a quantization_config of another kind ({})",
                                      Visible(config.quantization.method)));
  }
  return Status();
}

Result<StoredMatrix> FindDense(const ModelConfig& config, const Checkpoint& checkpoint,
                               const TensorSpec& spec, int32_t index) {
  MINISGL_ASSIGN_OR_RETURN(TensorView view, checkpoint.Get(spec.name));
  ShapeChecker shapes;
  std::vector<Dim> dims;
  for (const std::string& symbol : spec.dims) {
    const auto size = SymbolSize(config, symbol, spec.layer);
    if (!size) return BadInput("the configuration's sizes are too large ({})", symbol);
    shapes.Bind(symbol, *size);
    dims.emplace_back(symbol.c_str());
  }
  const Status fits = shapes.Check(spec.name, view.shape, dims);
  if (!fits.ok()) {
    const std::string file = checkpoint.FileOf(spec.name);
    return file.empty() ? fits : fits.WithPrefix(file);
  }
  if (view.shape.size() == 3) {
    view.shape.erase(view.shape.begin());
    view.data += static_cast<size_t>(index) * view.num_bytes();
  }
  StoredMatrix matrix = {WeightTensor(view), {spec.name}};
  if (spec.order == TensorOrder::kInputsFirst ||
      spec.order == TensorOrder::kInputsFirstInterleaved) {
    matrix.weights = matrix.weights.Transposed();
  }
  return matrix;
}

}  // namespace

Result<StoredMatrix> FindMatrix(const ModelConfig& config, const Checkpoint& checkpoint,
                                const TensorSpec& named, int32_t index) {
  TensorSpec spec = named;
  if (spec.role == TensorRole::kEmbedding) spec.name = StoredName(config, checkpoint, spec.name);
  // The matrices of such a file have the shapes that they need.
  if (const WeightTensor* matrix = checkpoint.FindMatrix(spec.name))
    return StoredMatrix{*matrix, {spec.name}};
  constexpr std::string_view kWeight = ".weight";
  std::string base = spec.name;
  if (base.ends_with(kWeight)) base.resize(base.size() - kWeight.size());
  // One tensor for all experts, or one for each.
  InStack stack;
  if (spec.dims.size() == 3) stack = {.count = config.experts.num_experts, .index = index};
  if (!config.quantization.empty()) {
    MINISGL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(config, spec));
    MINISGL_ASSIGN_OR_RETURN(auto codes,
                             FindIn(config.quantization, checkpoint, base, stack, sizes));
    if (codes) return *std::move(codes);
  }
  MINISGL_RETURN_IF_ERROR(ExplainMissing(config, checkpoint, spec.name, base));
  return FindDense(config, checkpoint, spec, index);
}

Result<std::optional<StoredMatrix>> FindCodes(const QuantizationConfig& config,
                                              const Checkpoint& checkpoint, const std::string& base,
                                              int64_t num_out, int64_t num_in) {
  return FindIn(config, checkpoint, base, {}, {.num_out = num_out, .num_in = num_in});
}

void FindDenseMatrices(const std::string& model_dir, QuantizationConfig* config) {
  const auto checkpoint = Checkpoint::Open(model_dir);
  if (!checkpoint.ok()) return;
  StoredMatrices matrices;
  for (const std::string& name : (*checkpoint)->Names()) {
    const Result<TensorView> view = (*checkpoint)->GetStored(name);
    if (view.ok() && view->shape.size() >= 2 && IsComputed(view->dtype)) {
      matrices.dense.push_back(name);
    }
  }
  config->matrices = std::make_shared<const StoredMatrices>(std::move(matrices));
}

}  // namespace minisgl::weights
