// Compares the tensors of a checkpoint with the requirements of its architecture, and counts the
// bytes of packed weights. Reads little but headers, so that a damaged model is rejected at once.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/tensor/tensor_view.h"
#include "model/model_weights.h"
#include "model/rank_cut.h"
#include "weights/architectures.h"
#include "weights/stored_matrix.h"
#include "weights/stored_names.h"
#include "weights/wrappers.h"

namespace minisgl::model {
namespace {

// The prefix "model.safetensors: " for the file of tensor `name`; "" if there is none.
Status InFile(const Checkpoint& checkpoint, const std::string& name, const Status& status) {
  const std::string file = checkpoint.FileOf(name);
  return file.empty() ? status : status.WithPrefix(file);
}

bool IsMatrix(weights::TensorRole role) {
  using Role = weights::TensorRole;
  switch (role) {
    case Role::kEmbedding:
    case Role::kPositions:
    case Role::kTokenTypes:
    case Role::kHead:
    case Role::kQkv:
    case Role::kQuery:
    case Role::kKey:
    case Role::kValue:
    case Role::kAttentionOutput:
    case Role::kGateUp:
    case Role::kGate:
    case Role::kUp:
    case Role::kDown:
    case Role::kRouter:
    case Role::kExpertGateUp:
    case Role::kExpertGate:
    case Role::kExpertUp:
    case Role::kExpertDown:
    case Role::kExpertsInput:
    case Role::kExpertsOutput:
    case Role::kSharedGateUp:
    case Role::kSharedGate:
    case Role::kSharedUp:
    case Role::kSharedDown:
    case Role::kSharedShare:
    case Role::kAttentionGate:
    case Role::kQueryDown:
    case Role::kQueryUp:
    case Role::kLatent:
    case Role::kLatentUp:
    case Role::kLatentKeys:
    case Role::kLatentValues:
    case Role::kPerLayerTable:
    case Role::kPerLayerModel:
    case Role::kPerLayerGate:
    case Role::kPerLayerOutput:
    case Role::kStateInput:
    case Role::kStateQuery:
    case Role::kStateKey:
    case Role::kStateValue:
    case Role::kStateGate:
    case Role::kStateDecay:
    case Role::kStateGain:
    case Role::kStateGainDecay:
    case Role::kStateOutput:
    case Role::kPredictionInput:
    case Role::kTransitionInput:
    case Role::kTransitionOutput:
      return true;
    default:
      return false;
  }
}

// Checks the tensors of `spec`, and adds their names to `known`.
Status CheckTensor(const ModelConfig& config, const Checkpoint& checkpoint,
                   const weights::TensorSpec& spec, std::set<std::string>* known) {
  if (IsMatrix(spec.role)) {
    MINISGL_ASSIGN_OR_RETURN(const weights::StoredMatrix matrix,
                             weights::FindMatrix(config, checkpoint, spec, /*index=*/0));
    known->insert(matrix.names.begin(), matrix.names.end());
    return Status();
  }
  known->insert(spec.name);
  MINISGL_ASSIGN_OR_RETURN(const TensorView view, checkpoint.Get(spec.name));
  // One number may have any axes of size 1.
  if (spec.dims.empty() && view.num_elements() == 1) return Status();
  ShapeChecker shapes;
  std::vector<Dim> dims;
  for (const std::string& symbol : spec.dims) {
    const auto size = weights::SymbolSize(config, symbol, spec.layer);
    if (!size) return BadInput("the configuration's sizes are too large ({})", symbol);
    shapes.Bind(symbol, *size);
    dims.emplace_back(symbol.c_str());
  }
  return InFile(checkpoint, spec.name, shapes.Check(spec.name, view.shape, dims));
}

// The beginnings of the names of all tensors of the model, up to a dot: of its layers, here and in
// GGUF files, and of the modules `known` outside of them.
std::set<std::string> ModulesOf(const ModelConfig& config, const std::set<std::string>& known) {
  std::set<std::string> modules = {config.text_prefix, "blk."};
  for (const std::string& name : known) {
    if (name.starts_with(config.text_prefix)) continue;
    if (const size_t dot = name.rfind('.'); dot != std::string::npos) {
      modules.insert(name.substr(0, dot + 1));
    }
  }
  return modules;
}

// Warns of tensors that cannot matter.
void WarnOfOthers(const std::vector<std::string>& others, const std::string& file) {
  constexpr size_t kNamedMax = 5;
  if (others.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(others.size(), kNamedMax); ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : ", ", Visible(others[i], 200));
  }
  if (others.size() > kNamedMax) names += fmt::format(" and {} more", others.size() - kNamedMax);
  Log(LogLevel::kWarning,
      fmt::format("{}: not loaded: {} tensor{} without elements or outside the model ({})", file,
                  others.size(), others.size() == 1 ? "" : "s", names));
}

// Warns of tensors that an index names and no file holds; the model needs none of them.
void WarnOfAbsent(const ModelConfig& config, const Checkpoint& checkpoint) {
  const std::vector<std::string> absent = checkpoint.Absent();
  if (absent.empty()) return;
  const bool is_usual = std::all_of(absent.begin(), absent.end(), [&](const std::string& name) {
    return weights::IsIgnorable(config, name);
  });
  Log(is_usual ? LogLevel::kVerbose : LogLevel::kWarning,
      fmt::format("the index of the weights names {} tensor{} that no file holds ({}{}); the model "
                  "needs none of them",
                  absent.size(), absent.size() == 1 ? "" : "s", Visible(absent[0], 200),
                  absent.size() == 1 ? "" : ", ..."));
}

Status CheckNoOthers(const ModelConfig& config, const Checkpoint& checkpoint,
                     const std::set<std::string>& known, bool logs) {
  std::map<std::string_view, int64_t> num_unused;  // by what they are of
  std::vector<std::string> others;
  const std::set<std::string> modules = ModulesOf(config, known);
  const auto is_of_model = [&](std::string_view name) {
    return std::any_of(modules.begin(), modules.end(),
                       [&](const std::string& module) { return name.starts_with(module); });
  };
  for (const std::string& name : checkpoint.Names()) {
    if (known.contains(name)) continue;
    if (weights::IsIgnorable(config, name)) {
      const std::string_view part =
          config.wrapper.empty() ? std::string_view() : weights::OtherPartOf(name);
      if (!part.empty()) {
        ++num_unused[part];
      } else if (weights::IsOfPredictionLayer(config, name)) {
        ++num_unused[weights::kPredictionPart];
      }
      continue;
    }
    if (!config.quantization.empty() && weights::IsActivationScale(name)) continue;
    const auto stored = checkpoint.GetStored(name);
    if ((stored.ok() && stored->num_elements() == 0) || !is_of_model(name)) {
      others.push_back(name);
      continue;
    }
    return InFile(checkpoint, name,
                  BadInput("unknown tensor \"{}\"; want only those of {} with {} layers",
                           Visible(name), config.architecture, config.num_layers));
  }
  if (logs) WarnOfAbsent(config, checkpoint);
  for (const auto& [part, count] : num_unused) {
    if (logs) Log(LogLevel::kVerbose, fmt::format("not loaded: {} tensors of {}", count, part));
  }
  if (logs && !others.empty()) WarnOfOthers(others, checkpoint.FileOf(others[0]));
  return Status();
}

// True for small matrices that decide much: which experts run, what states keep, where tokens are.
bool IsNeverQuantized(weights::TensorRole role) {
  using Role = weights::TensorRole;
  return role == Role::kRouter || role == Role::kSharedShare || role == Role::kLatentUp ||
         role == Role::kLatentKeys || role == Role::kLatentValues || role == Role::kStateGain ||
         role == Role::kStateDecay || role == Role::kStateGainDecay || role == Role::kPositions ||
         role == Role::kTokenTypes || role == Role::kTransitionInput;
}

// The format of tensors of `role` if matrices have `format`.
WeightFormat FormatOf(weights::TensorRole role, const WeightFormat& format) {
  if (!IsMatrix(role)) return DType::kF32;
  const bool whole = IsNeverQuantized(role);
  if (role == weights::TensorRole::kEmbedding || role == weights::TensorRole::kHead) {
    return TableFormat(format);
  }
  return whole ? WeightFormat(format.dtype) : format;
}

// True if the checkpoint has the matrix `spec` as codes, and it is packed as such: routers, shared
// gates and what latents are expanded by are not.
bool IsQuantized(const ModelConfig& config, const weights::TensorSpec& spec) {
  using Role = weights::TensorRole;
  const QuantizationConfig& quantization = config.quantization;
  if (quantization.empty() || !IsMatrix(spec.role) || IsNeverQuantized(spec.role)) {
    return false;
  }
  if (quantization.matrices != nullptr) {
    const std::vector<std::string>& dense = quantization.matrices->dense;
    return !std::binary_search(dense.begin(), dense.end(), spec.name);
  }
  return spec.role != Role::kEmbedding && spec.role != Role::kHead;
}

// The first of the roles whose matrices have common codes with those of `role` if they are kept as
// codes; `role` if there are no others. Of stacks outside experts each part may have its own, but
// a device keeps all of a stack's parts as codes, or none.
weights::TensorRole StackOf(weights::TensorRole role, bool on_device) {
  using Role = weights::TensorRole;
  switch (role) {
    case Role::kExpertUp:
      return Role::kExpertGate;
    case Role::kKey:
    case Role::kValue:
      return on_device ? Role::kQuery : role;
    case Role::kUp:
      return on_device ? Role::kGate : role;
    case Role::kSharedUp:
      return on_device ? Role::kSharedGate : role;
    case Role::kStateKey:
    case Role::kStateValue:
      return on_device ? Role::kStateQuery : role;
    default:
      return role;
  }
}

// Who keeps codes, and how.
struct Packing {
  bool on_device = false;
  bool has_6_bits = false;  // on the CPU (CpuPacks6Bits)
};

// An upper bound on the bytes of an output's scales.
uint64_t ScaleBytes(const QuantScheme& scheme, uint64_t groups, uint64_t num_in) {
  if (scheme.layout != QuantLayout::kRowBlocks) return groups * DTypeBytes(DType::kF32);
  // All factors of rows of blocks are exact in 16 bits.
  constexpr uint64_t kFactorBytes = 2;
  if (scheme.factor_inputs == 0) return groups * kFactorBytes;
  return groups + CeilDiv(num_in, static_cast<uint64_t>(scheme.factor_inputs)) * kFactorBytes;
}

// Bytes of a matrix that is kept as codes of `scheme`, without what fills its last panel: an upper
// bound, as its scales may be exact in 16 bits and its inputs fewer than whole lines. nullopt if it
// is expanded, because its inputs are permuted or its groups are not made of whole words, or if it
// has 2^64 or more.
std::optional<uint64_t> CodeBytes(const QuantScheme& scheme, uint64_t num_out, uint64_t num_in,
                                  bool packs_6_bits) {
  constexpr uint64_t kWordInputs = 8, kLineInputs = 128;
  const auto block = static_cast<uint64_t>(scheme.block_inputs);
  if (block != 0 && num_in % block == 0) {
    return CheckedMul(num_in / block * static_cast<uint64_t>(scheme.block_bytes), num_out);
  }
  const auto group = static_cast<uint64_t>(scheme.group_inputs);
  if (scheme.has_order || (group % kWordInputs != 0 && group < num_in)) return std::nullopt;
  const uint64_t groups = group == 0 ? 1 : CeilDiv(num_in, group);
  const bool has_6_bits = packs_6_bits && scheme.block_form.codes == RowCodes::kInt6;
  const uint64_t bits = scheme.bits == 4 ? 4 : has_6_bits ? 6 : 8;
  const auto codes = CheckedMul(CeilDiv(num_in, kLineInputs), kLineInputs * bits / 8);
  if (!codes) return std::nullopt;
  const uint64_t factors = ScaleBytes(scheme, groups, num_in) * (scheme.has_offsets ? 2 : 1);
  return CheckedMul(*codes + factors + (scheme.has_zeros ? groups : 0), num_out);
}

// The same on a device, whose lines are shorter: an upper bound, as its scales may have 16 bits.
std::optional<uint64_t> DeviceCodeBytes(const QuantScheme& scheme, uint64_t num_out,
                                        uint64_t num_in) {
  const auto form = scheme.DeviceForm(static_cast<int64_t>(num_in));
  if (!form) return std::nullopt;
  return CheckedMul(static_cast<uint64_t>(form->row_bytes(static_cast<int64_t>(num_in))), num_out);
}

// Bytes of a matrix in `format`, if the checkpoint's codes are not kept.
std::optional<uint64_t> PlainBytes(const WeightFormat& format, uint64_t num_out, uint64_t num_in,
                                   bool on_device) {
  const bool is_quantized =
      format.quantization == Quantization::kInt8 || format.quantization == Quantization::kInt4;
  if (!on_device || !is_quantized) return WeightBytes(format, num_out, num_in);
  const auto in = static_cast<int64_t>(num_in);
  return CheckedMul(static_cast<uint64_t>(FormOfQuantized(format.quantization, in).row_bytes(in)),
                    num_out);
}

// The schemes that the matrix `name` may be stored in.
std::vector<QuantScheme> SchemesOf(const QuantizationConfig& quantization,
                                   const std::string& name) {
  if (quantization.matrices != nullptr) {
    const auto& scheme_of = quantization.matrices->scheme_of;
    const auto found = scheme_of.find(name);
    if (found != scheme_of.end()) return {found->second};
  }
  return quantization.schemes;
}

// The most that a matrix which is kept as codes of any of `schemes` takes; nullopt if one expands
// it.
std::optional<uint64_t> MostCodeBytes(const std::vector<QuantScheme>& schemes, uint64_t num_out,
                                      uint64_t num_in, const Packing& packing) {
  uint64_t most = 0;
  for (const QuantScheme& scheme : schemes) {
    const auto bytes = packing.on_device ? DeviceCodeBytes(scheme, num_out, num_in)
                                         : CodeBytes(scheme, num_out, num_in, packing.has_6_bits);
    if (!bytes) return std::nullopt;
    most = std::max(most, *bytes);
  }
  return most;
}

std::optional<uint64_t> TensorBytes(const ModelConfig& config, const weights::TensorSpec& spec,
                                    const WeightFormat& format, bool keeps_codes,
                                    const Packing& packing) {
  if (spec.role == weights::TensorRole::kPerLayerTable) return 0;  // PerLayerTableBytes
  if (spec.dims.empty()) return sizeof(float);
  std::vector<uint64_t> sizes;
  for (const std::string& symbol : spec.dims) {
    const auto size = weights::SymbolSize(config, symbol, spec.layer);
    if (!size) return std::nullopt;
    sizes.push_back(static_cast<uint64_t>(*size));
  }
  if (spec.order == weights::TensorOrder::kInputsFirst ||
      spec.order == weights::TensorOrder::kInputsFirstInterleaved) {
    std::swap(sizes[sizes.size() - 2], sizes[sizes.size() - 1]);
  }
  const uint64_t num_in = sizes.back();
  sizes.pop_back();
  const auto num_out = CheckedProduct(sizes);
  if (num_out && keeps_codes) {
    const std::vector<QuantScheme> schemes = SchemesOf(config.quantization, spec.name);
    if (const auto bytes = MostCodeBytes(schemes, *num_out, num_in, packing)) {
      return bytes;
    }
  }
  const bool is_copy = spec.role == weights::TensorRole::kHead && !config.copied_head.empty();
  const WeightFormat own = is_copy ? CopiedHeadFormat(format) : FormatOf(spec.role, format);
  return num_out ? PlainBytes(own, *num_out, num_in, packing.on_device) : std::nullopt;
}

// True if the rank's inputs of a matrix do not begin and end with groups of `schemes`: its codes
// cannot be kept apart from their scales.
bool CutsGroups(const TensorCut& cut, const std::vector<QuantScheme>& schemes) {
  if (cut.axis != TensorCut::Axis::kInputs) return false;
  return std::any_of(schemes.begin(), schemes.end(), [&](const QuantScheme& scheme) {
    const Span& span = cut.spans[0];
    const int64_t group = GroupOfCodes(scheme);
    if (group == 0 || span.first / group == (span.first + span.count - 1) / group) return false;
    return span.first % group != 0;
  });
}

// True if `spec` is of one expert alone.
bool IsOfOneExpert(const weights::TensorSpec& spec) {
  using enum weights::TensorRole;
  return spec.dims.size() == 2 &&
         (spec.role == kExpertGate || spec.role == kExpertUp || spec.role == kExpertDown);
}

// Which experts' matrices are to be counted: a large mixture has tens of thousands, which are alike
// unless the checkpoint's files say otherwise.
weights::ListedExperts CountedExperts(const ModelConfig& config) {
  const StoredMatrices* const matrices = config.quantization.matrices.get();
  return matrices == nullptr || matrices->experts_alike ? weights::ListedExperts::kFirst
                                                        : weights::ListedExperts::kAll;
}

// `config`: of the rank; `specs`: with CountedExperts.
std::optional<uint64_t> SumBytes(const ModelConfig& whole, const ModelConfig& config,
                                 const Rank& rank, const std::vector<weights::TensorSpec>& specs,
                                 const WeightFormat& format, const Packing& packing) {
  const bool on_device = packing.on_device;
  const bool counts_first = CountedExperts(config) == weights::ListedExperts::kFirst;
  // Parts of a stack that may not have common codes are expanded.
  std::set<std::pair<weights::TensorRole, int32_t>> expanded;
  std::map<std::pair<weights::TensorRole, int32_t>, QuantScheme> schemes;  // of the first parts
  for (const weights::TensorSpec& spec : specs) {
    const std::pair stack(StackOf(spec.role, on_device), spec.index);
    const std::vector<QuantScheme> own = SchemesOf(config.quantization, spec.name);
    const bool is_known =
        own.size() == 1 && schemes.try_emplace(stack, own[0]).first->second == own[0];
    // A device keeps parts of several forms one below the other, except those of experts.
    const bool has_any_form = on_device && spec.role != weights::TensorRole::kExpertUp;
    const bool is_sure =
        IsQuantized(config, spec) && (is_known || has_any_form || stack.first == spec.role);
    const bool is_cut = CutsGroups(CutOf(whole, spec.layer, spec.role, rank), own);
    if (!is_sure || is_cut) expanded.insert(stack);
  }
  std::optional<uint64_t> sum = 0;
  for (const weights::TensorSpec& spec : specs) {
    const bool keeps_codes = format.quantization == Quantization::kStored &&
                             !expanded.contains({StackOf(spec.role, on_device), spec.index});
    auto bytes = TensorBytes(config, spec, format, keeps_codes, packing);
    if (bytes && counts_first && IsOfOneExpert(spec)) {
      bytes = CheckedMul(*bytes, static_cast<uint64_t>(config.experts.num_experts));
    }
    sum = bytes ? CheckedAdd(*sum, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
  }
  return sum;
}

std::vector<weights::TensorSpec> CountedTensors(const ModelConfig& config, int32_t layer) {
  return weights::LayerTensors(config, layer, CountedExperts(config));
}

struct KindOfLayers {
  int32_t example;
  uint64_t count;
};

// Layers whose tensors have equal shapes: of one LayerShape and mixer, with experts or without, on
// the host or not, with keys and values of their own or of another layer. Each is one by itself if
// any layer may have exceptions of its matrices' formats.
std::vector<KindOfLayers> KindsOfLayers(const ModelConfig& config, const WeightFormat& format,
                                        const std::vector<bool>& on_host) {
  const bool all_differ =
      format.quantization == Quantization::kStored && config.quantization.matrices != nullptr;
  const auto are_alike = [&](int32_t a, int32_t b) {
    if (on_host[static_cast<size_t>(a)] != on_host[static_cast<size_t>(b)]) return false;
    const LayerConfig& first = config.layers[static_cast<size_t>(a)];
    const LayerConfig& second = config.layers[static_cast<size_t>(b)];
    return first.has_experts == second.has_experts && first.mixer == second.mixer &&
           first.has_feed_forward == second.has_feed_forward &&
           (first.kv_layer < 0) == (second.kv_layer < 0) &&
           first.lacks_attention_norm == second.lacks_attention_norm &&
           LayerShapeOf(config, a) == LayerShapeOf(config, b);
  };
  std::vector<KindOfLayers> kinds;
  for (int32_t layer = 0; layer < std::ssize(config.layers); ++layer) {
    const auto kind =
        std::find_if(all_differ ? kinds.end() : kinds.begin(), kinds.end(),
                     [&](const KindOfLayers& one) { return are_alike(one.example, layer); });
    if (kind == kinds.end()) {
      kinds.push_back({layer, 1});
    } else {
      ++kind->count;
    }
  }
  return kinds;
}

// True for the products of experts.
bool OfProduct(weights::TensorRole role) {
  using enum weights::TensorRole;
  return role == kExpertGateUp || role == kExpertGate || role == kExpertUp || role == kExpertDown ||
         role == kExpertGateUpBias || role == kExpertDownBias;
}

// The tensors of experts' products, and all others, if they are wanted.
std::vector<weights::TensorSpec> WithOrWithout(std::vector<weights::TensorSpec> specs,
                                               bool products, bool others) {
  std::erase_if(specs, [&](const weights::TensorSpec& spec) {
    return OfProduct(spec.role) ? !products : !others;
  });
  return specs;
}

// 0 if there is none.
std::optional<uint64_t> PerLayerTableBytes(const ModelConfig& config, DType dtype) {
  const uint64_t factors[] = {static_cast<uint64_t>(config.per_layer_vocab),
                              static_cast<uint64_t>(config.num_layers),
                              static_cast<uint64_t>(config.per_layer_width), DTypeBytes(dtype)};
  return CheckedProduct(factors);
}

}  // namespace

Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint, bool logs) {
  std::set<std::string> known;
  const auto check = [&](const std::vector<weights::TensorSpec>& specs) -> Status {
    for (const weights::TensorSpec& spec : specs) {
      MINISGL_RETURN_IF_ERROR(CheckTensor(config, checkpoint, spec, &known));
    }
    return Status();
  };
  MINISGL_RETURN_IF_ERROR(check(weights::ModelTensors(config)));
  // A configuration may claim any number of layers; the loop ends at the first missing one.
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    MINISGL_RETURN_IF_ERROR(check(weights::LayerTensors(config, layer)));
  }
  // Beside a prediction layer stand the target's tensors.
  if (config.is_prediction_layer()) return Status();
  return CheckNoOthers(config, checkpoint, known, logs);
}

std::optional<uint64_t> ModelWeightBytes(const ModelConfig& whole, const WeightFormat& format,
                                         DType activation_dtype, const Rank& rank,
                                         int32_t num_host_layers, bool packs_6_bits) {
  const ModelConfig config = RankConfig(whole, rank);
  const auto sum_bytes = [&](const std::vector<weights::TensorSpec>& specs) {
    return SumBytes(whole, config, rank, specs, format,
                    {KeepsPerLayerTable(activation_dtype), packs_6_bits});
  };
  std::optional<uint64_t> sum = sum_bytes(weights::ModelTensors(config));
  if (sum && config.adds_distances()) {
    const int64_t more = (DistanceStride(config) - config.num_distances) * config.num_heads;
    sum = CheckedAdd(*sum, static_cast<uint64_t>(std::max<int64_t>(more, 0)) * sizeof(float));
  }
  if (sum && KeepsPerLayerTable(activation_dtype)) {
    const auto table = PerLayerTableBytes(config, activation_dtype);
    sum = table ? CheckedAdd(*sum, *table) : std::nullopt;
  }
  const std::vector<bool> on_host = HostExpertLayers(config, num_host_layers);
  for (const auto& [example, count] : KindsOfLayers(config, format, on_host)) {
    const bool has_experts = !on_host[static_cast<size_t>(example)];
    const auto layer = sum_bytes(WithOrWithout(CountedTensors(config, example), has_experts, true));
    const auto layers = layer ? CheckedMul(*layer, count) : std::nullopt;
    sum = sum && layers ? CheckedAdd(*sum, *layers) : std::nullopt;
  }
  return sum;
}

std::optional<uint64_t> HostExpertBytes(const ModelConfig& whole, const WeightFormat& format,
                                        const Rank& rank, int32_t num_host_layers,
                                        bool packs_6_bits) {
  const ModelConfig config = RankConfig(whole, rank);
  const std::vector<bool> on_host = HostExpertLayers(config, num_host_layers);
  std::optional<uint64_t> sum = 0;
  for (const auto& [example, count] : KindsOfLayers(config, format, on_host)) {
    if (!on_host[static_cast<size_t>(example)]) continue;
    const auto layer =
        SumBytes(whole, config, rank, WithOrWithout(CountedTensors(config, example), true, false),
                 format, {.on_device = false, .has_6_bits = packs_6_bits});
    const auto layers = layer ? CheckedMul(*layer, count) : std::nullopt;
    sum = sum && layers ? CheckedAdd(*sum, *layers) : std::nullopt;
  }
  return sum;
}

}  // namespace minisgl::model
