// quantization_config as each package writes it, and every value of it that is refused by its key.
#include "minisgl/weights/quantization_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config_check.h"
#include "weights/quantization_reader.h"

namespace minisgl {
namespace {

const std::string kModel = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 100,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4})";

std::string Quantized(const std::string& config) {
  return R"({"quantization_config": )" + config + "}";
}

QuantizationConfig ReadConfig(const std::string& config) {
  return Config(kModel, Quantized(config)).quantization;
}

// The key below quantization_config that `more` in `config` is refused for.
std::string Refused(const std::string& config, const std::string& more) {
  const std::string key = RefusedKey(kModel, Quantized(Joined(config, more)));
  constexpr std::string_view kPrefix = "quantization_config.";
  return key.starts_with(kPrefix) ? key.substr(kPrefix.size()) : "not below: " + key;
}

QuantScheme Only(const QuantizationConfig& config) {
  EXPECT_EQ(config.schemes.size(), 1u);
  return config.schemes.empty() ? QuantScheme() : config.schemes[0];
}

// One group of compressed-tensors, with `weights`.
std::string Compressed(const std::string& format, const std::string& weights,
                       const std::string& group = "") {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "config_groups": {"group_0": {"targets": ["Linear"], )" + group + R"("weights": )" +
         weights + "}}}";
}

const std::string kFp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 64]})";
const std::string kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 32})";
const std::string kAwq = R"({"quant_method": "awq", "bits": 4, "group_size": 32})";

TEST(QuantizationConfigTest, NoneMeansDenseWeights) {
  EXPECT_TRUE(Config(kModel).quantization.empty());
  EXPECT_TRUE(Config(kModel, R"({"quantization_config": null})").quantization.empty());
}

TEST(QuantizationConfigTest, Fp8) {
  const QuantizationConfig config = ReadConfig(kFp8);
  EXPECT_EQ(config.method, "fp8");
  EXPECT_EQ(Only(config), (QuantScheme{.layout = QuantLayout::kFp8,
                                       .group_outputs = 128,
                                       .group_inputs = 64,
                                       .rounds_activations = true}));
  EXPECT_EQ(Only(config).Name(), "fp8, blocks of 128 x 64");
  EXPECT_EQ(Only(ReadConfig(R"({"quant_method": "fp8"})")).Name(), "fp8, one scale a matrix");
  EXPECT_EQ(Refused(kFp8, R"({"weight_block_size": [128]})"), "weight_block_size");
  EXPECT_EQ(Refused(kFp8, R"({"weight_block_size": [128, 0]})"), "weight_block_size");
  EXPECT_EQ(Refused(kFp8, R"({"activation_scheme": "none"})"), "activation_scheme");
  EXPECT_EQ(Refused(kFp8, R"({"fmt": "e5m2"})"), "fmt");
  EXPECT_EQ(Refused(kFp8, R"({"scale_fmt": "e4m3"})"), "scale_fmt");
  EXPECT_EQ(Refused(kFp8, R"({"expert_dtype": "fp4"})"), "expert_dtype");
}

TEST(QuantizationConfigTest, CompressedTensors) {
  const std::string ints = R"({"num_bits": 4, "group_size": 32, "strategy": "group"})";
  EXPECT_EQ(Only(ReadConfig(Compressed("pack-quantized", ints))),
            (QuantScheme{.layout = QuantLayout::kPackedInt, .bits = 4, .group_inputs = 32}));
  EXPECT_EQ(Only(ReadConfig(Compressed(
                "pack-quantized",
                R"({"num_bits": 8, "group_size": -1, "symmetric": false, "actorder": "group"})"))),
            (QuantScheme{.layout = QuantLayout::kPackedInt, .has_zeros = true, .has_order = true}));
  // The format of a group comes before the format of all.
  EXPECT_EQ(Only(ReadConfig(Compressed(
                "mixed-precision", R"({"num_bits": 8, "type": "float", "strategy": "channel"})",
                R"("format": "float-quantized", "input_activations": {"num_bits": 8},)"))),
            (QuantScheme{.layout = QuantLayout::kFp8, .rounds_activations = true}));
  EXPECT_EQ(Only(ReadConfig(Compressed(
                "float-quantized",
                R"({"type": "float", "strategy": "block", "block_structure": "128x128"})"))),
            (QuantScheme{.layout = QuantLayout::kFp8, .group_outputs = 128, .group_inputs = 128}));
  EXPECT_EQ(Only(ReadConfig(Compressed("int-quantized", R"({"num_bits": 8})"))),
            (QuantScheme{.layout = QuantLayout::kInt8, .group_outputs = 0}));
  EXPECT_EQ(
      Only(
          ReadConfig(Compressed(
              "nvfp4-pack-quantized",
              R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})")))
          .Name(),
      "nvfp4, groups of 16");
}

TEST(QuantizationConfigTest, CompressedTensorsRefusesByKey) {
  const auto weights = [](const std::string& more) {
    const std::string good = R"({"num_bits": 4, "group_size": 32, "strategy": "group"})";
    return Refused(Compressed("pack-quantized", Joined(good, more)), "{}");
  };
  const std::string at = "config_groups.group_0.";
  EXPECT_EQ(weights(R"({"strategy": "token"})"), at + "weights.strategy");
  EXPECT_EQ(weights(R"({"group_size": 0})"), at + "weights.group_size");
  EXPECT_EQ(weights(R"({"actorder": "random"})"), at + "weights.actorder");
  EXPECT_EQ(weights(R"({"dynamic": true})"), at + "weights.dynamic");
  EXPECT_EQ(weights(R"({"type": "complex"})"), at + "weights.type");
  EXPECT_EQ(weights(R"({"num_bits": 3})"), at + "format");
  EXPECT_EQ(weights(R"({"type": "float"})"), at + "format");
  EXPECT_EQ(weights(R"({"strategy": "block"})"), at + "weights.block_structure");
  EXPECT_EQ(Refused(Compressed("marlin-24", R"({"num_bits": 4})"), "{}"), at + "format");
  EXPECT_EQ(Refused(Compressed("float-quantized",
                               R"({"num_bits": 8, "type": "float", "symmetric": false})"),
                    "{}"),
            at + "weights.symmetric");
  const std::string good = Compressed("pack-quantized", R"({"num_bits": 4, "group_size": 32})");
  EXPECT_EQ(Refused(good, R"({"quantization_status": "calibration"})"), "quantization_status");
  EXPECT_EQ(Refused(good, R"({"transform_config": {"R1": {}}})"), "transform_config");
  EXPECT_EQ(Refused(good, R"({"sparsity_config": {"format": "sparse-24-bitmask"}})"),
            "sparsity_config");
  EXPECT_EQ(Refused(good, R"({"config_groups": {}})"), "config_groups");
  std::string many = "{";
  for (int i = 0; i < 65; ++i) many += fmt::format("{}\"g{}\": {{}}", i == 0 ? "" : ", ", i);
  EXPECT_EQ(Refused(good, R"({"config_groups": )" + many + "}}"), "config_groups");
  EXPECT_EQ(Refused(good, R"({"config_groups": {"g": 1}})"), "config_groups.g");
  EXPECT_EQ(Refused(good, R"({"config_groups": {"g": {}}})"), "config_groups.g.weights");
}

TEST(QuantizationConfigTest, Gptq) {
  EXPECT_EQ(Only(ReadConfig(kGptq)), (QuantScheme{.layout = QuantLayout::kGptq,
                                                  .bits = 4,
                                                  .group_inputs = 32,
                                                  .has_zeros = true,
                                                  .zeros_minus_one = true}));
  const QuantScheme second = Only(ReadConfig(Joined(
      kGptq, R"({"bits": 8, "group_size": -1, "desc_act": true, "checkpoint_format": "gptq_v2",
                 "dynamic": {"-:.*mlp": {}}})")));
  EXPECT_EQ(second,
            (QuantScheme{.layout = QuantLayout::kGptq, .has_zeros = true, .has_order = true}));
  EXPECT_EQ(Refused(kGptq, R"({"bits": 3})"), "bits");
  EXPECT_EQ(Refused(kGptq, R"({"group_size": 0})"), "group_size");
  EXPECT_EQ(Refused(kGptq, R"({"checkpoint_format": "marlin"})"), "checkpoint_format");
  EXPECT_EQ(Refused(kGptq, R"({"is_marlin_format": true})"), "is_marlin_format");
  EXPECT_EQ(Refused(kGptq, R"({"pack_dtype": "int16"})"), "pack_dtype");
  EXPECT_EQ(Refused(kGptq, R"({"dynamic": {"+:.*mlp": {"bits": 8}}})"), "dynamic");
}

TEST(QuantizationConfigTest, Awq) {
  const QuantScheme awq = {
      .layout = QuantLayout::kAwq, .bits = 4, .group_inputs = 32, .has_zeros = true};
  EXPECT_EQ(Only(ReadConfig(kAwq)), awq);
  EXPECT_EQ(Only(ReadConfig(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 32,
                                "version": "GEMM"})")),
            awq);
  EXPECT_EQ(Refused(kAwq, R"({"bits": 8})"), "bits");
  EXPECT_EQ(Refused(kAwq, R"({"version": "gemv"})"), "version");
  EXPECT_EQ(Refused(kAwq, R"({"zero_point": false})"), "zero_point");
}

TEST(QuantizationConfigTest, ModelOptInEitherFile) {
  EXPECT_EQ(Only(ReadConfig(R"({"quant_algo": "NVFP4"})")).Name(), "nvfp4, groups of 16");
  EXPECT_EQ(Only(ReadConfig(R"({"quant_method": "modelopt", "quant_algo": "FP8"})")).Name(),
            "fp8, one scale a matrix");
  EXPECT_EQ(Refused(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", "{}"),
            "quant_algo");
  EXPECT_EQ(Refused(R"({"quant_method": "modelopt"})", "{}"), "quant_algo");
  const auto file = weights::ParseModelOptFile(
      R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8_PB_WO"}})", "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(Only(*file).Name(), "fp8, blocks of 128 x 128");
  const auto kv_alone =
      weights::ParseModelOptFile(R"({"quantization": {"quant_algo": null}})", "f");
  ASSERT_TRUE(kv_alone.ok()) << kv_alone.status().message();
  EXPECT_TRUE(kv_alone->empty());
  for (const char* bad : {"{}", R"({"quantization": {"quant_algo": "INT3"}})", "[]"}) {
    ExpectError(weights::ParseModelOptFile(bad, "hf.json").status(), StatusCode::kBadInput,
                "hf.json: ");
  }
}

// Activations of int8 with a scale for each token are told from others.
TEST(QuantizationConfigTest, Int8InputsPerToken) {
  const std::string weights =
      R"({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"})";
  const auto has_int8_inputs = [&](const std::string& inputs) {
    const std::string group = R"("input_activations": )" + inputs + ", ";
    return Only(ReadConfig(Compressed("int-quantized", weights, group))).int8_inputs;
  };
  const std::string rest = R"("symmetric": true, "type": "int"})";
  EXPECT_TRUE(has_int8_inputs(R"({"num_bits": 8, "strategy": "token", "dynamic": true, )" + rest));
  for (const char* other : {R"({"num_bits": 8, "strategy": "token", "dynamic": false, )",
                            R"({"num_bits": 8, "strategy": "tensor", "dynamic": true, )",
                            R"({"num_bits": 4, "strategy": "token", "dynamic": true, )"}) {
    EXPECT_FALSE(has_int8_inputs(other + rest)) << other;
  }
  EXPECT_FALSE(has_int8_inputs("null"));
  EXPECT_FALSE(has_int8_inputs("[]"));
}

// Which checkpoints round activations to e4m3, and by which scales.
TEST(QuantizationConfigTest, E4M3Inputs) {
  const auto of_fp8 = [](const std::string& more) {
    return Only(ReadConfig(R"({"quant_method": "fp8")" + more + "}")).e4m3_inputs;
  };
  EXPECT_EQ(of_fp8(""), InputRounding::kToken);
  EXPECT_EQ(of_fp8(R"(, "activation_scheme": "static")"), InputRounding::kTensor);
  EXPECT_EQ(of_fp8(R"(, "weight_block_size": [128, 128])"), InputRounding::kGroups);
  EXPECT_EQ(of_fp8(R"(, "weight_block_size": [128, 64])"), InputRounding::kNone);
  EXPECT_EQ(of_fp8(R"(, "weight_block_size": [128, 128], "activation_scheme": "static")"),
            InputRounding::kNone);
  const auto of_group = [](const std::string& inputs, const std::string& format) {
    const std::string weights = R"({"num_bits": 8, "type": "float", "strategy": "channel"})";
    return Only(ReadConfig(Compressed(format, weights, R"("input_activations": )" + inputs + ",")))
        .e4m3_inputs;
  };
  const auto of_inputs = [&](const std::string& strategy, const std::string& dynamic,
                             const std::string& more = "", const std::string& bits = "8") {
    return of_group(R"({"type": "float", "symmetric": true, "num_bits": )" + bits +
                        R"(, "strategy": ")" + strategy + R"(", "dynamic": )" + dynamic + more +
                        "}",
                    "float-quantized");
  };
  EXPECT_EQ(of_inputs("token", "true"), InputRounding::kToken);
  EXPECT_EQ(of_inputs("tensor", "true"), InputRounding::kToken);
  EXPECT_EQ(of_inputs("tensor", "false"), InputRounding::kTensor);
  EXPECT_EQ(of_inputs("group", "true", R"(, "group_size": 128)"), InputRounding::kGroups);
  EXPECT_EQ(of_inputs("group", "true", R"(, "group_size": 64)"), InputRounding::kNone);
  EXPECT_EQ(of_inputs("token", "false"), InputRounding::kNone);
  EXPECT_EQ(of_inputs("token", R"("local")"), InputRounding::kNone);
  EXPECT_EQ(of_inputs("token", "true", "", "4"), InputRounding::kNone);
  EXPECT_EQ(of_group("null", "float-quantized"), InputRounding::kNone);
  const auto of_modelopt = [](const std::string& algorithm) {
    return Only(ReadConfig(R"({"quant_method": "modelopt", "quant_algo": ")" + algorithm + "\"}"))
        .e4m3_inputs;
  };
  EXPECT_EQ(of_modelopt("FP8"), InputRounding::kTensor);
  EXPECT_EQ(of_modelopt("FP8_PER_CHANNEL_PER_TOKEN"), InputRounding::kToken);
  EXPECT_EQ(of_modelopt("FP8_PB_WO"), InputRounding::kNone);
}

// As NVIDIA publishes Nemotron 3: an algorithm for each matrix, in either file.
TEST(QuantizationConfigTest, ModelOptMixesAlgorithms) {
  const auto mixed = [](const std::string& layers) {
    return R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": )" + layers + "}";
  };
  const std::string layers = R"({"a": {"quant_algo": "FP8"},
      "b": {"quant_algo": "W4A16_NVFP4", "group_size": 16}, "c": {"quant_algo": "FP8"},
      "d": {"quant_algo": "NVFP4", "group_size": 32}})";
  const QuantizationConfig config = ReadConfig(mixed(layers));
  ASSERT_EQ(config.schemes.size(), 3u);
  EXPECT_EQ(config.schemes[0].Name(), "fp8, one scale a matrix");
  EXPECT_EQ(config.schemes[1].Name(), "nvfp4, groups of 16");
  EXPECT_FALSE(config.schemes[1].rounds_activations);
  EXPECT_EQ(config.schemes[2].Name(), "nvfp4, groups of 32");
  const auto file =
      weights::ParseModelOptFile(R"({"quantization": )" + mixed(layers) + "}", "hf.json");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->schemes, config.schemes);

  const auto refused = [&](const std::string& bad) { return Refused(mixed(bad), "{}"); };
  for (const char* bad : {"null", "{}", "[]", "3"}) EXPECT_EQ(refused(bad), "quantized_layers");
  EXPECT_EQ(refused(R"({"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "INT3"}})"),
            "quantized_layers.b.quant_algo");
  EXPECT_EQ(refused(R"({"a": {"quant_algo": "MIXED_PRECISION"}})"),
            "quantized_layers.a.quant_algo");
  EXPECT_EQ(refused(R"({"a": null})"), "quantized_layers.a");
  EXPECT_EQ(refused(R"({"a": 1})"), "quantized_layers.a");
  EXPECT_EQ(refused(R"({"a": {"quant_algo": "NVFP4", "group_size": 0}})"),
            "quantized_layers.a.group_size");
  std::string many;
  for (int i = 0; i < 65; ++i) {
    many += fmt::format(R"({}"{}": {{"quant_algo": "FP8", "note": {}}})", i == 0 ? "" : ", ", i, i);
  }
  EXPECT_EQ(refused("{" + many + "}"), "quantized_layers");
}

TEST(QuantizationConfigTest, AnUnknownMethodIsRefused) {
  EXPECT_EQ(Refused(R"({"quant_method": "bitsandbytes"})", "{}"), "quant_method");
  EXPECT_EQ(Refused("{}", "{}"), "quant_method");
  EXPECT_EQ(Only(ReadConfig(R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})"))
                .Name(),
            "mxfp4, groups of 32");
}

}  // namespace
}  // namespace minisgl
