// See quantization_reader.h. Keys and their meanings are those that the packages write:
// transformers (fp8, mxfp4), compressed-tensors, gptqmodel and auto-gptq, autoawq, modelopt.
#include "weights/quantization_reader.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::weights {
namespace {

constexpr IntRange kGroupRange = {1, 1 << 24};
constexpr IntRange kGroupOrAllRange = {-1, 1 << 24};
constexpr int64_t kNvfp4Group = 16, kMxGroup = 32;
constexpr size_t kGroupsMax = 64;

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// True if activations are integers of 8 bits without zero points, with a scale for each token that
// is found as the model runs.
bool AreInt8PerToken(const Json& inputs) {
  if (!inputs.is_object()) return false;
  const auto is = [&](std::string_view key, const Json& value) {
    const Json* const found = inputs.Find(key);
    return found != nullptr && *found == value;
  };
  return is("num_bits", Json(8)) && is("type", Json("int")) && is("strategy", Json("token")) &&
         is("dynamic", Json(true)) && is("symmetric", Json(true));
}

// How activations are rounded to e4m3.
InputRounding E4M3RoundingOf(const Json& inputs) {
  if (!inputs.is_object()) return InputRounding::kNone;
  const auto is = [&](std::string_view key, const Json& value) {
    const Json* const found = inputs.Find(key);
    return found != nullptr && *found == value;
  };
  const bool is_e4m3 = is("num_bits", Json(8)) && is("type", Json("float"));
  const bool is_dynamic = is("dynamic", Json(true));
  if (!is_e4m3 || !is("symmetric", Json(true))) return InputRounding::kNone;
  if (is("strategy", Json("tensor")) && is("dynamic", Json(false))) return InputRounding::kTensor;
  // One scale for the tokens of a step would make a token depend on the others.
  if (is_dynamic && (is("strategy", Json("token")) || is("strategy", Json("tensor")))) {
    return InputRounding::kToken;
  }
  const bool has_groups = is("strategy", Json("group")) && is("group_size", Json(kScaledInputs));
  return is_dynamic && has_groups ? InputRounding::kGroups : InputRounding::kNone;
}

bool IsEmptyOrNull(const Json* value) {
  return value == nullptr || (value->is_object() && value->as_object().empty());
}

// A group size of `key`: 0 for -1 (all inputs), `fallback` if the key is absent.
int64_t GroupSize(FieldReader* reader, std::string_view key, int64_t fallback) {
  const auto size = reader->OptionalInt(key, kGroupOrAllRange);
  if (size == 0) reader->Fail(key, "-1 (all inputs) or a positive number is supported");
  if (!size) return fallback;
  return std::max<int64_t>(*size, 0);
}

// Two positive numbers, or "128x128"; nullopt if the key is absent.
std::optional<std::pair<int64_t, int64_t>> Block(FieldReader* reader, std::string_view key) {
  constexpr const char* kSupported = "[outputs, inputs], two positive numbers, is supported";
  const Json* value = reader->Find(key);
  if (value == nullptr) return std::nullopt;
  if (*value == Json("128x128")) return std::pair<int64_t, int64_t>(128, 128);
  const auto is_size = [](const Json& size) {
    return size.is_int() && kGroupRange.Holds(size.as_int());
  };
  if (!value->is_array() || value->as_array().size() != 2 || !is_size(value->as_array()[0]) ||
      !is_size(value->as_array()[1])) {
    reader->Fail(key, kSupported);
    return std::nullopt;
  }
  return std::pair(value->as_array()[0].as_int(), value->as_array()[1].as_int());
}

// --- fp8, mxfp4 ----------------------------------------------------------------------------------

QuantScheme ReadFp8(FieldReader* reader) {
  QuantScheme scheme = {.layout = QuantLayout::kFp8, .group_outputs = 0};
  if (const auto block = Block(reader, "weight_block_size")) {
    scheme.group_outputs = block->first;
    scheme.group_inputs = block->second;
  }
  const std::string activations =
      reader->OptionalString("activation_scheme", "\"dynamic\" and \"static\" are supported")
          .value_or("dynamic");
  if (activations != "dynamic" && activations != "static") {
    reader->Fail("activation_scheme", "\"dynamic\" and \"static\" are supported");
  }
  const auto codes = reader->OptionalString("fmt", "\"e4m3\" is supported");
  if (codes && *codes != "e4m3" && *codes != "float8_e4m3fn") {
    reader->Fail("fmt", "\"e4m3\" is supported");
  }
  const auto scales = reader->OptionalString("scale_fmt", "\"float\" and \"ue8m0\" are supported");
  if (scales && *scales != "float" && *scales != "ue8m0") {
    reader->Fail("scale_fmt", "\"float\" and \"ue8m0\" are supported");
  }
  if (reader->OptionalString("expert_dtype", "\"fp8\" is supported").value_or("fp8") != "fp8") {
    reader->Fail("expert_dtype", "\"fp8\" is supported");
  }
  scheme.rounds_activations = true;
  if (scheme.group_inputs == 0) {
    scheme.e4m3_inputs = activations == "static" ? InputRounding::kTensor : InputRounding::kToken;
  } else if (activations == "dynamic" && scheme.group_inputs == kScaledInputs) {
    scheme.e4m3_inputs = InputRounding::kGroups;
  }
  return scheme;
}

QuantScheme Mxfp4Blocks() {
  return {.layout = QuantLayout::kMxfp4Blocks, .bits = 4, .group_inputs = kMxGroup};
}

// --- compressed-tensors --------------------------------------------------------------------------

// The key "strategy", or what its absence means.
std::string Strategy(FieldReader* weights) {
  constexpr const char* kSupported =
      "\"tensor\", \"channel\", \"group\", \"block\" and \"tensor_group\" are supported";
  const auto strategy = weights->OptionalString("strategy", kSupported);
  if (!strategy) {
    const auto group = weights->OptionalInt("group_size", kGroupOrAllRange);
    if (!group) return "tensor";
    return *group > 0 ? "group" : "channel";
  }
  for (const char* known : {"tensor", "channel", "group", "block", "tensor_group"}) {
    if (*strategy == known) return *strategy;
  }
  weights->Fail("strategy", kSupported);
  return "";
}

// Sets the sizes of groups.
void ReadGroups(FieldReader* weights, QuantScheme* scheme) {
  const std::string strategy = Strategy(weights);
  if (strategy == "tensor") {
    scheme->group_outputs = 0;
  } else if (strategy == "group" || strategy == "tensor_group") {
    scheme->group_inputs = weights->Int("group_size", kGroupRange);
  } else if (strategy == "block") {
    const auto block = Block(weights, "block_structure");
    if (!block) weights->Fail("block_structure", "a block strategy needs [outputs, inputs]");
    scheme->group_outputs = block ? block->first : 1;
    scheme->group_inputs = block ? block->second : 0;
  }
}

// Sets has_order by "actorder".
void ReadOrder(FieldReader* weights, QuantScheme* scheme) {
  constexpr const char* kSupported =
      "null, \"weight\", \"static\", \"group\" and \"dynamic\" are supported";
  const Json* value = weights->Find("actorder");
  if (value == nullptr) return;
  if (value->is_bool()) {
    scheme->has_order = value->as_bool();
    return;
  }
  const std::string order = weights->OptionalString("actorder", kSupported).value_or("");
  scheme->has_order = order == "group" || order == "dynamic";
  if (!scheme->has_order && order != "weight" && order != "static") {
    weights->Fail("actorder", kSupported);
  }
}

// The layout of weights of `type` and `bits` in `format`; nullopt if there is none.
std::optional<QuantLayout> LayoutOf(const std::string& format, const std::string& type,
                                    int64_t bits) {
  const bool is_int = type == "int", is_8_bits = bits == 8;
  if (format == "pack-quantized" && is_int && (bits == 4 || is_8_bits)) {
    return QuantLayout::kPackedInt;
  }
  if (format == "int-quantized" && is_int && is_8_bits) return QuantLayout::kInt8;
  if (format == "float-quantized" && !is_int && is_8_bits) return QuantLayout::kFp8;
  if (format == "naive-quantized" && is_8_bits) {
    return is_int ? QuantLayout::kInt8 : QuantLayout::kFp8;
  }
  if (format == "nvfp4-pack-quantized" && !is_int && bits == 4) return QuantLayout::kNvfp4Packed;
  if (format == "mxfp4-pack-quantized" && !is_int && bits == 4) return QuantLayout::kMxfp4Packed;
  if (format == "mxfp8-quantized" && !is_int && is_8_bits) return QuantLayout::kMxfp8;
  return std::nullopt;
}

// One of config_groups. `format`: of the whole configuration.
QuantScheme ReadGroup(FieldReader* group, const std::string& format) {
  constexpr const char* kFormats =
      "pack-quantized (int of 4 or 8 bits), int-quantized (int8), float-quantized (fp8), "
      "naive-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized and mxfp8-quantized are "
      "supported";
  QuantScheme scheme;
  std::optional<FieldReader> weights = group->Object("weights");
  if (!weights) {
    group->Fail("weights", "how weights are quantized is needed");
    return scheme;
  }
  const std::string own = group->OptionalString("format", kFormats).value_or(format);
  scheme.bits = static_cast<int32_t>(weights->Int("num_bits", {1, 32}, 8));
  const std::string type = weights->OptionalString("type", kFormats).value_or("int");
  if (type != "int" && type != "float")
    weights->Fail("type", "\"int\" and \"float\" are supported");
  const auto layout = LayoutOf(own, type, scheme.bits);
  if (!layout && weights->ok()) {
    group->FailWith("format",
                    fmt::format("{} with {} of {} bits", Visible(own, kQuotedBytesMax),
                                Visible(type, kQuotedBytesMax), scheme.bits),
                    kFormats);
  }
  scheme.layout = layout.value_or(QuantLayout::kFp8);
  scheme.has_zeros = !weights->Bool("symmetric", true);
  if (scheme.has_zeros && type == "float") {
    weights->Fail("symmetric", "weights of type float have no zero points (true)");
  }
  ReadGroups(&*weights, &scheme);
  if (scheme.has_zeros && scheme.group_outputs > 1) {
    weights->Fail("symmetric", "blocks have no zero points (true)");
  }
  ReadOrder(&*weights, &scheme);
  if (weights->Bool("dynamic", false)) weights->Fail("dynamic", "weights have fixed scales");
  const Json* const inputs = group->Find("input_activations");
  scheme.rounds_activations = inputs != nullptr;
  scheme.int8_inputs = inputs != nullptr && AreInt8PerToken(*inputs);
  if (inputs != nullptr && scheme.layout == QuantLayout::kFp8) {
    scheme.e4m3_inputs = E4M3RoundingOf(*inputs);
  }
  group->Absorb(*weights);
  return scheme;
}

void ReadCompressedTensors(FieldReader* reader, QuantizationConfig* config) {
  const std::string format = reader->OptionalString("format", "a name is supported").value_or("");
  // Whatever it is said to be, a matrix of codes is one.
  constexpr const char* kStatuses = "\"compressed\" and \"frozen\" are supported";
  const auto status = reader->OptionalString("quantization_status", kStatuses);
  if (status && *status != "compressed" && *status != "frozen") {
    reader->Fail("quantization_status", kStatuses);
  }
  if (!IsEmptyOrNull(reader->Find("transform_config"))) {
    reader->Fail("transform_config", "only weights without transforms (null) are supported");
  }
  if (const Json* sparsity = reader->Find("sparsity_config"); !IsEmptyOrNull(sparsity)) {
    const Json* kind = sparsity->is_object() ? sparsity->Find("format") : nullptr;
    if (kind == nullptr || *kind != Json("dense")) {
      reader->Fail("sparsity_config", "only dense weights (null) are supported");
    }
  }
  const Json* groups = reader->Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->as_object().empty()) {
    return reader->Fail("config_groups", "an object with at least one group is needed");
  }
  if (groups->as_object().size() > kGroupsMax) {
    return reader->FailWith("config_groups", fmt::format("{}", groups->as_object().size()),
                            fmt::format("at most {} groups are supported", kGroupsMax));
  }
  std::optional<FieldReader> all = reader->Object("config_groups");
  for (const auto& [name, member] : groups->as_object()) {
    std::optional<FieldReader> group = all->Object(name);
    if (!group) {
      all->Fail(name, "a group is needed");
      break;
    }
    const QuantScheme scheme = ReadGroup(&*group, format);
    all->Absorb(*group);
    if (!all->ok()) break;
    std::vector<QuantScheme>& schemes = config->schemes;
    if (std::find(schemes.begin(), schemes.end(), scheme) == schemes.end()) {
      schemes.push_back(scheme);
    }
  }
  reader->Absorb(*all);
}

// --- gptq, awq -----------------------------------------------------------------------------------

QuantScheme ReadGptq(FieldReader* reader) {
  QuantScheme scheme = {.layout = QuantLayout::kGptq, .has_zeros = true};
  scheme.bits = static_cast<int32_t>(reader->Int("bits", {1, 32}));
  if (scheme.bits != 4 && scheme.bits != 8) reader->Fail("bits", "4 and 8 are supported");
  scheme.group_inputs = GroupSize(reader, "group_size", 128);
  scheme.has_order = reader->Bool("desc_act", false);
  const char* key = reader->Find("checkpoint_format") != nullptr ? "checkpoint_format" : "format";
  constexpr const char* kFormats = "\"gptq\" and \"gptq_v2\" are supported";
  const std::string format = reader->OptionalString(key, kFormats).value_or("gptq");
  if (format != "gptq" && format != "gptq_v2") reader->Fail(key, kFormats);
  scheme.zeros_minus_one = format == "gptq";
  if (reader->Bool("is_marlin_format", false)) {
    reader->Fail("is_marlin_format", "only false is supported");
  }
  if (reader->OptionalString("pack_dtype", "\"int32\" is supported").value_or("int32") != "int32") {
    reader->Fail("pack_dtype", "\"int32\" is supported");
  }
  // Rules that begin with "-:" exempt matrices, as the tensors show; others change their bits.
  const Json* dynamic = reader->Find("dynamic");
  if (dynamic != nullptr && !dynamic->is_bool()) {
    const bool exempts = dynamic->is_object() &&
                         std::all_of(dynamic->as_object().begin(), dynamic->as_object().end(),
                                     [](const auto& rule) { return rule.first.starts_with("-:"); });
    if (!exempts) reader->Fail("dynamic", "only rules that exempt (\"-:...\") are supported");
  }
  return scheme;
}

QuantScheme ReadAwq(FieldReader* reader) {
  QuantScheme scheme = {.layout = QuantLayout::kAwq, .bits = 4, .has_zeros = true};
  const char* bits = reader->Find("bits") != nullptr ? "bits" : "w_bit";
  if (reader->Int(bits, {1, 32}) != 4) reader->Fail(bits, "4 is supported");
  const char* size = reader->Find("group_size") != nullptr ? "group_size" : "q_group_size";
  scheme.group_inputs = GroupSize(reader, size, 128);
  const std::string version =
      Lower(reader->OptionalString("version", "\"gemm\" is supported").value_or("gemm"));
  if (version != "gemm") reader->Fail("version", "\"gemm\" is supported");
  if (!reader->Bool("zero_point", true)) reader->Fail("zero_point", "true is supported");
  return scheme;
}

// --- modelopt ------------------------------------------------------------------------------------

QuantScheme ReadModelOptAlgorithm(FieldReader* reader) {
  constexpr const char* kAlgorithms =
      "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4, MXFP8 and, of a whole model, "
      "MIXED_PRECISION are supported";
  const std::string algorithm =
      Lower(reader->OptionalString("quant_algo", kAlgorithms).value_or(""));
  if (algorithm == "fp8") {
    return {.layout = QuantLayout::kFp8,
            .group_outputs = 0,
            .rounds_activations = true,
            .e4m3_inputs = InputRounding::kTensor};
  }
  if (algorithm == "fp8_per_channel_per_token") {
    return {.layout = QuantLayout::kFp8,
            .rounds_activations = true,
            .e4m3_inputs = InputRounding::kToken};
  }
  if (algorithm == "fp8_pb_wo") {
    return {.layout = QuantLayout::kFp8, .group_outputs = 128, .group_inputs = 128};
  }
  if (algorithm == "nvfp4" || algorithm == "w4a16_nvfp4") {
    const int64_t group = reader->Int("group_size", kGroupRange, kNvfp4Group);
    return {.layout = QuantLayout::kNvfp4,
            .bits = 4,
            .group_inputs = group,
            .rounds_activations = algorithm == "nvfp4"};
  }
  if (algorithm == "mxfp8") {
    return {.layout = QuantLayout::kMxfp8, .group_inputs = kMxGroup, .rounds_activations = true};
  }
  reader->Fail("quant_algo", kAlgorithms);
  return {};
}

// The algorithms in "quantized_layers": an object for each matrix, many, but of few kinds.
void ReadModelOptLayers(FieldReader* reader, QuantizationConfig* config) {
  const Json* layers = reader->Find("quantized_layers");
  if (layers == nullptr || !layers->is_object() || layers->as_object().empty()) {
    return reader->Fail("quantized_layers", "an object with at least one layer is needed");
  }
  std::optional<FieldReader> all = reader->Object("quantized_layers");
  std::vector<const Json*> known;
  for (const auto& [name, member] : layers->as_object()) {
    const auto is_member = [&](const Json* other) { return *other == member; };
    if (std::any_of(known.begin(), known.end(), is_member)) continue;
    known.push_back(&member);
    if (known.size() > kGroupsMax) {
      return reader->FailWith("quantized_layers", fmt::format("{}", known.size()),
                              fmt::format("at most {} different ones are supported", kGroupsMax));
    }
    std::optional<FieldReader> layer = all->Object(name);
    if (!layer) {
      all->Fail(name, "an object is needed");
      break;
    }
    const QuantScheme scheme = ReadModelOptAlgorithm(&*layer);
    all->Absorb(*layer);
    if (!all->ok()) break;
    std::vector<QuantScheme>& schemes = config->schemes;
    if (std::find(schemes.begin(), schemes.end(), scheme) == schemes.end()) {
      schemes.push_back(scheme);
    }
  }
  reader->Absorb(*all);
}

void ReadModelOpt(FieldReader* reader, QuantizationConfig* config) {
  const Json* algorithm = reader->Find("quant_algo");
  if (algorithm != nullptr && algorithm->is_string() &&
      Lower(algorithm->as_string()) == "mixed_precision") {
    return ReadModelOptLayers(reader, config);
  }
  config->schemes = {ReadModelOptAlgorithm(reader)};
}

void ReadByMethod(FieldReader* reader, QuantizationConfig* config) {
  constexpr const char* kMethods =
      "\"compressed-tensors\", \"fp8\", \"gptq\", \"awq\", \"mxfp4\" and \"modelopt\" are "
      "supported";
  const bool is_model_opt = reader->Find("quant_method") == nullptr && reader->Has("quant_algo");
  config->method =
      is_model_opt ? "modelopt" : reader->OptionalString("quant_method", kMethods).value_or("");
  if (config->method == "fp8") {
    config->schemes = {ReadFp8(reader)};
  } else if (config->method == "compressed-tensors") {
    ReadCompressedTensors(reader, config);
  } else if (config->method == "gptq") {
    config->schemes = {ReadGptq(reader)};
  } else if (config->method == "awq") {
    config->schemes = {ReadAwq(reader)};
  } else if (config->method == "mxfp4") {
    config->schemes = {Mxfp4Blocks()};
  } else if (config->method == "modelopt") {
    ReadModelOpt(reader, config);
  } else {
    reader->Fail("quant_method", kMethods);
  }
}

}  // namespace

void ReadQuantization(FieldReader* reader, QuantizationConfig* config) {
  const char* const names[] = {"quantization_config", "compression_config"};
  for (const char* name : names) {
    std::optional<FieldReader> inner = reader->Object(name);
    if (!inner) continue;
    ReadByMethod(&*inner, config);
    config->text = reader->Find(name)->Dump();
    return reader->Absorb(*inner);
  }
}

Result<QuantizationConfig> ParseModelOptFile(const std::string& text, const std::string& file) {
  constexpr int kDepthMax = 16;
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kDepthMax));
  FieldReader reader(json, file);
  QuantizationConfig config;
  config.method = "modelopt";
  config.text = text;
  std::optional<FieldReader> inner = reader.Object("quantization");
  if (!inner) {
    reader.Fail("quantization", "how weights are quantized is needed");
    return reader.status();
  }
  if (inner->Find("quant_algo") == nullptr) return QuantizationConfig();  // the KV cache alone
  ReadModelOpt(&*inner, &config);
  MINISGL_RETURN_IF_ERROR(inner->status());
  return config;
}

}  // namespace minisgl::weights

namespace minisgl {

std::optional<CodeForm> QuantScheme::DeviceForm(int64_t num_in) const {
  constexpr int64_t kGroupUnit = 8;
  CodeForm form = layout == QuantLayout::kRowBlocks ? block_form : CodeForm();
  form.group_inputs = group_inputs == 0 ? num_in : std::min(group_inputs, num_in);
  if (has_order || (form.group_inputs % kGroupUnit != 0 && form.group_inputs < num_in)) {
    return std::nullopt;
  }
  if (layout != QuantLayout::kRowBlocks && bits == 4) form.codes = RowCodes::kTable4;
  switch (layout) {
    case QuantLayout::kNvfp4Packed:
    case QuantLayout::kNvfp4:
      form.scales = GroupScales::kE4M3Steps;
      break;
    case QuantLayout::kMxfp4Packed:
    case QuantLayout::kMxfp4Blocks:
    case QuantLayout::kMxfp8:
      form.scale_type = DType::kE8M0;
      break;
    case QuantLayout::kGptq:
    case QuantLayout::kAwq:
      form.scale_type = DType::kF16;
      form.has_zeros = true;
      break;
    default:
      form.has_zeros = has_zeros;
  }
  return form;
}

std::string QuantScheme::Name() const {
  std::string name;
  switch (layout) {
    case QuantLayout::kFp8:
    case QuantLayout::kMxfp8:
      name = layout == QuantLayout::kFp8 ? "fp8" : "mxfp8";
      break;
    case QuantLayout::kNvfp4Packed:
    case QuantLayout::kNvfp4:
      name = "nvfp4";
      break;
    case QuantLayout::kMxfp4Packed:
    case QuantLayout::kMxfp4Blocks:
      name = "mxfp4";
      break;
    default:
      name = fmt::format("int{}", bits);
  }
  if (group_outputs == 0) return name + ", one scale a matrix";
  if (group_inputs == 0) return name + ", a scale for each output";
  if (group_outputs > 1) {
    return fmt::format("{}, blocks of {} x {}", name, group_outputs, group_inputs);
  }
  return fmt::format("{}, groups of {}", name, group_inputs);
}

}  // namespace minisgl
