// GGUF files run as the model directories that they were made from (golden/make_gguf.py): the same
// logits, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gguf_logits.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_tensor.h"
#include "model/model_weights.h"
#include "temporary_folder.h"
#include "weights/architectures.h"

namespace minisgl {
namespace {

struct Case {
  const char* name;
  // Keys of config.json that GGUF files cannot say otherwise, as JSON.
  const char* changes = "{}";
};

constexpr const char* kYarnOfLatents =
    R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 4, "beta_slow": 1, "mscale": 0.6, "mscale_all_dim": 0.6}})";

constexpr Case kCases[] = {
    {"llama_biases"},
    {"mixtral", R"({"sliding_window": null})"},
    {"qwen2"},
    {"qwen3"},
    {"qwen3_moe_plain", R"({"norm_topk_prob": true, "use_sliding_window": false})"},
    {"gemma"},
    {"gemma2", R"({"query_pre_attn_scalar": 12})"},
    {"gemma3_text", R"({"query_pre_attn_scalar": 12})"},
    {"phi3_short"},
    {"granite"},
    {"olmo2"},
    {"glm4"},
    {"gpt_oss", R"({"swiglu_limit": 7.0})"},
    {"lfm2"},
    // Files state one number in place of mscale and mscale_all_dim.
    {"deepseek_v2", kYarnOfLatents},
    {"deepseek_v2_lite"},
    {"deepseek_v3", kYarnOfLatents},
    {"gemma4_text"},
    {"gemma4_moe"},
};

// The configuration of a model directory with some keys changed.
ModelConfig ChangedConfig(const std::string& dir, const std::string& changes) {
  Json json = *ParseJson(*ReadFile(dir + "/config.json", 1 << 20));
  json.SetAll(*ParseJson(changes));
  auto config = ParseModelConfig(json.Dump(), dir);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}

// The logits of the file and of the directory differ by rounding alone.
void ExpectClose(const std::string& name) {
  ModelConfig config;
  const std::vector<float> logits = LogitsOfFile(kGolden + "/gguf/" + name + ".gguf", &config);
  const std::string dir = kGolden + "/models/" + name;
  const ModelConfig of_dir = *LoadModelConfig(dir);
  EXPECT_EQ(config.architecture, of_dir.architecture);
  EXPECT_EQ(config.dtype, of_dir.dtype);
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const std::vector<float> wanted = LogitsOf(of_dir, **checkpoint);
  ASSERT_EQ(logits.size(), wanted.size());
  float largest = 0;
  for (const float logit : wanted) largest = std::max(largest, std::abs(logit));
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-5 * largest);
}

class GgufLogitsTest : public testing::TestWithParam<Case> {};

TEST_P(GgufLogitsTest, AreThoseOfTheModelDirectory) {
  const std::string dir = kGolden + "/models/" + GetParam().name;
  const ModelConfig wanted = ChangedConfig(dir, GetParam().changes);
  ModelConfig found;
  const std::vector<float> logits =
      LogitsOfFile(kGolden + "/gguf/" + GetParam().name + ".gguf", &found);
  EXPECT_EQ(found.architecture, wanted.architecture);
  EXPECT_EQ(found.dtype, wanted.dtype);
  EXPECT_EQ(found.bos_token_id.has_value(), false);  // the files have no tokenizer
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(logits, LogitsOf(wanted, **checkpoint));
}

INSTANTIATE_TEST_SUITE_P(All, GgufLogitsTest, testing::ValuesIn(kCases),
                         [](const auto& model) { return std::string(model.param.name); });

// Decay rates are stored as powers, whose logarithms are rounded.
TEST(GgufModelTest, HeadsByTurnsGiveTheLogitsOfHeadsInOrder) { ExpectClose("qwen3_5_text"); }

TEST(GgufModelTest, DecaysAsPowersGiveTheLogitsOfTheirLogarithms) {
  for (const char* name : {"nemotron_h", "nemotron_h_moe", "nemotron_h_latent"}) ExpectClose(name);
}

// Files store the factors of frequencies, and not the settings that they were computed from.
TEST(GgufModelTest, FactorsOfFrequenciesGiveTheLogitsOfLlama3Scaling) {
  ExpectClose("f16_sharded");
}

// A file with matrices of several quantized types gives the logits of their values. Kept codes
// change nothing. Returns its configuration.
ModelConfig ExpectLogitsOfValues(const std::string& path) {
  ModelConfig config;
  const std::vector<float> logits = LogitsOfFile(path, &config);
  const auto stored = Checkpoint::Open(path);
  EXPECT_TRUE(stored.ok());
  if (!stored.ok()) return config;
  const auto memory = std::make_shared<std::map<std::string, std::vector<float>>>();
  std::map<std::string, TensorView> views;
  const auto required = weights::RequiredTensors(config);
  EXPECT_TRUE(required.ok()) << required.status().message();
  for (const weights::RequiredTensor& tensor : *required) {
    std::vector<float>& values = (*memory)[tensor.name];
    if (const WeightTensor* matrix = (*stored)->FindMatrix(tensor.name)) {
      values.resize(static_cast<size_t>(matrix->num_out() * matrix->num_in()));
      for (int64_t row = 0; row < matrix->num_out(); ++row) {
        matrix->ReadRow(row, values.data() + row * matrix->num_in());
      }
    } else {
      const auto view = (*stored)->Get(tensor.name);
      EXPECT_TRUE(view.ok()) << view.status().message();
      for (int64_t i = 0; i < view->num_elements(); ++i) values.push_back(view->At(i));
    }
    views[tensor.name] = {reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                          tensor.shape};
  }
  const auto dense = Checkpoint::FromViews(views, memory, "values");
  EXPECT_EQ(logits, LogitsOf(config, *dense));
  EXPECT_EQ(logits, LogitsOf(config, **stored, {DType::kF32, Quantization::kStored}));
  return config;
}

// Every matrix of it is of another type.
TEST(GgufModelTest, QuantizedMatricesGiveTheLogitsOfTheirValues) {
  const ModelConfig config = ExpectLogitsOfValues(kGolden + "/gguf/types.gguf");
  // The schemes have 4 and 8 bits, groups of 16 and 32, offsets or none, factors or none; and a
  // device keeps those of Q3_K and Q6_K in other forms.
  EXPECT_EQ(config.quantization.schemes.size(), 9u);
  EXPECT_EQ(config.quantization.matrices->dense.size(), 0u);
}

TEST(GgufModelTest, MatricesOfCodebooksGiveTheLogitsOfTheirValues) {
  const ModelConfig config = ExpectLogitsOfValues(kGolden + "/gguf/types_of_grids.gguf");
  EXPECT_EQ(config.quantization.schemes.size(), 9u);
}

// The gate and up matrices of experts are blocks of one type; queries and keys are, and values not.
TEST(GgufModelTest, ExpertsOfCodebooksGiveTheLogitsOfTheirValues) {
  const ModelConfig config = ExpectLogitsOfValues(kGolden + "/gguf/types_of_experts.gguf");
  EXPECT_EQ(config.experts.num_experts, 3);
  EXPECT_EQ(config.quantization.matrices->dense.size(), 1u);  // the router
}

// Scales of type e4m3 are times the factor of the tensor, or of its expert. Returns the factors of
// the matrices of a file, in the order of the model.
std::vector<float> FactorsOf(const std::string& path) {
  const auto config = LoadModelConfig(path);
  const auto checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(config.ok() && checkpoint.ok());
  std::vector<float> factors;
  const auto required = weights::RequiredTensors(*config);
  EXPECT_TRUE(required.ok()) << required.status().message();
  for (const weights::RequiredTensor& tensor : *required) {
    const WeightTensor* const matrix = (*checkpoint)->FindMatrix(tensor.name);
    if (matrix == nullptr || matrix->is_dense() || !matrix->blocks()->codes.has_e4m3_steps) {
      continue;
    }
    int64_t group = 0;
    const auto code_of = [&] {
      return static_cast<uint8_t>(
          matrix->BlockOf(0, group)[group % matrix->blocks()->num_groups()]);
    };
    while (code_of() == 0 || code_of() == 0x7F) ++group;
    factors.push_back(matrix->ScaleOf(0, group) / E4M3ToFloat(code_of()));
  }
  return factors;
}

TEST(GgufModelTest, ScalesBesideTensorsAreFactorsOfTheirWeights) {
  const std::vector<float> dense = FactorsOf(kGolden + "/gguf/types_of_grids.gguf");
  ASSERT_EQ(dense.size(), 1u);
  EXPECT_FLOAT_EQ(dense[0], 0.04f);
  const std::vector<float> experts = FactorsOf(kGolden + "/gguf/types_of_experts.gguf");
  ASSERT_EQ(experts.size(), 3u);
  EXPECT_FLOAT_EQ(experts[0], 0.04f);
  EXPECT_FLOAT_EQ(experts[1], 0.08f);
  EXPECT_FLOAT_EQ(experts[2], 0.06f);
}

TEST(GgufModelTest, AFactorThatIsNoNumberIsRefused) {
  std::string bytes = *ReadFile(kGolden + "/gguf/types_of_grids.gguf", 1 << 20);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(header.ok()) << header.status().message();
  const auto scale = std::find_if(
      header->tensors.begin(), header->tensors.end(),
      [](const GgufTensor& tensor) { return tensor.name == "blk.0.attn_output.scale"; });
  ASSERT_NE(scale, header->tensors.end());
  const float value = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + scale->begin, &value, sizeof(value));
  const TemporaryFolder folder;
  std::ofstream(folder.Path("model.gguf"), std::ios::binary) << bytes;
  const Status status = Checkpoint::Open(folder.Path("model.gguf")).status();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("\"blk.0.attn_output.scale\": element 0 is inf; weights must be"),
            std::string::npos)
      << status.message();
}

// A norm that is no number is named, and not multiplied by.
TEST(GgufModelTest, ANormThatIsNoNumberIsRefused) {
  std::string bytes = *ReadFile(kGolden + "/gguf/qwen3.gguf", 1 << 20);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(header.ok()) << header.status().message();
  const auto norm =
      std::find_if(header->tensors.begin(), header->tensors.end(),
                   [](const GgufTensor& tensor) { return tensor.name == "blk.1.ffn_norm.weight"; });
  ASSERT_NE(norm, header->tensors.end());
  const TemporaryFolder folder;
  const std::string path = folder.Path("model.gguf");
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::memcpy(bytes.data() + norm->begin + 2 * sizeof(value), &value, sizeof(value));
    std::ofstream(path, std::ios::binary) << bytes;
    const ModelConfig config = *LoadModelConfig(path);
    const Status status = ComputeLogits(config, **Checkpoint::Open(path), DType::kF32,
                                        F32Ops().get(), SomeIds(config))
                              .status();
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find("model.gguf: tensor \"model.layers.1.post_attention_layernorm."
                                    "weight\": element 2 is"),
              std::string::npos)
        << status.message();
  }
}

// Parts of blocks, whose codes are kept or expanded, add up to the same.
class GgufRanksTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufRanksTest, QuantizedMatricesAreDivided) {
  const std::string path = kGolden + "/gguf/" + GetParam();
  ModelConfig config;
  const std::vector<float> wanted = LogitsOfFile(path, &config);
  const auto stored = Checkpoint::Open(path);
  ASSERT_TRUE(stored.ok());
  const float largest = std::abs(*std::max_element(
      wanted.begin(), wanted.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  const auto found = ComputeLogits(config, **stored, {DType::kF32, Quantization::kStored},
                                   RanksOfF32Activations(2), SomeIds(config));
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found->size(), wanted.size());
  float worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    worst = std::max(worst, std::abs((*found)[i] - wanted[i]));
  }
  EXPECT_LE(worst, 1e-4f * largest);
}

INSTANTIATE_TEST_SUITE_P(All, GgufRanksTest,
                         testing::Values("types.gguf", "types_of_grids.gguf",
                                         "types_of_experts.gguf"));

// Bytes of the weights if codes are kept.
std::optional<uint64_t> BytesOf(const ModelConfig& config) {
  return model::ModelWeightBytes(config, {DType::kF32, Quantization::kStored}, DType::kF32);
}

// Q4_0 in the layers and Q8_0 in the table: each matrix counts with the bytes that it is kept in.
TEST(GgufModelTest, CodesOfSeveralTypesAreCountedOneByOne) {
  ModelConfig config = *LoadModelConfig(kGolden + "/gguf/chat.gguf");
  const QuantScheme bytes = config.quantization.schemes[0];
  EXPECT_EQ(bytes.bits, 8);
  const auto of_bytes = BytesOf(config);
  QuantScheme nibbles = bytes;
  nibbles.bits = 4;
  config.quantization.schemes.push_back(nibbles);
  EXPECT_EQ(BytesOf(config), of_bytes);  // no matrix has it
  StoredMatrices matrices = *config.quantization.matrices;
  for (auto& [name, scheme] : matrices.scheme_of) {
    if (name.find(".mlp.") != std::string::npos) scheme = nibbles;
  }
  config.quantization.matrices = std::make_shared<const StoredMatrices>(matrices);
  // Gate and up [64, 32] and down [32, 64] take a line of 128 inputs for each output.
  EXPECT_EQ(*BytesOf(config), *of_bytes - (64 + 64 + 32) * 64);
  // The parts of a stack may be of two kinds, and each keeps its own.
  matrices.scheme_of.at("model.layers.0.mlp.up_proj.weight") = bytes;
  config.quantization.matrices = std::make_shared<const StoredMatrices>(matrices);
  EXPECT_EQ(*BytesOf(config), *of_bytes - (64 + 32) * 64);
}

// The same matrices, with those of each expert listed by themselves.
std::shared_ptr<const StoredMatrices> ListedOneByOne(const ModelConfig& config) {
  const StoredMatrices& first = *config.quantization.matrices;
  StoredMatrices all = first;
  all.experts_alike = false;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    std::map<weights::TensorRole, std::string> name_of;
    for (const auto& spec : weights::LayerTensors(config, layer, weights::ListedExperts::kFirst)) {
      name_of[spec.role] = spec.name;
    }
    for (const auto& spec : weights::LayerTensors(config, layer)) {
      const std::string& name = name_of.at(spec.role);
      const auto scheme = first.scheme_of.find(name);
      if (scheme != first.scheme_of.end()) all.scheme_of.emplace(spec.name, scheme->second);
      if (std::ranges::binary_search(first.dense, name)) all.dense.push_back(spec.name);
    }
  }
  std::ranges::sort(all.dense);
  return std::make_shared<const StoredMatrices>(std::move(all));
}

TEST(GgufModelTest, ExpertsThatAreAlikeCountAsOneByOne) {
  for (const char* name : {"types_of_experts", "qwen3_5_moe_text", "glm4_moe", "gpt_oss"}) {
    ModelConfig config = *LoadModelConfig(kGolden + "/gguf/" + name + ".gguf");
    ModelConfig listed = config;
    if (config.quantization.matrices != nullptr) {
      EXPECT_TRUE(config.quantization.matrices->experts_alike);
      listed.quantization.matrices = ListedOneByOne(config);
      EXPECT_GT(listed.quantization.matrices->scheme_of.size(),
                config.quantization.matrices->scheme_of.size());
    } else {
      listed.quantization.matrices = std::make_shared<const StoredMatrices>();  // all one by one
    }
    const WeightFormat formats[] = {{DType::kF32, Quantization::kStored}, DType::kBF16};
    for (const WeightFormat& format : formats) {
      for (const int32_t num_host_layers : {0, 1}) {
        for (const int32_t num_ranks : {1, 2}) {
          const Rank rank{.index = 0, .count = num_ranks};
          const auto bytes = [&](const ModelConfig& one) {
            return model::ModelWeightBytes(one, format, DType::kF32, rank, num_host_layers);
          };
          ASSERT_TRUE(bytes(config).has_value());
          EXPECT_EQ(bytes(config), bytes(listed)) << name << num_host_layers << num_ranks;
          EXPECT_EQ(model::HostExpertBytes(config, format, rank, num_host_layers, false),
                    model::HostExpertBytes(listed, format, rank, num_host_layers, false));
        }
      }
    }
  }
}

// Q6_K in the table [64, 256] and Q5_K in the keys [32, 256]: two bits less for each code where the
// CPU's target packs them so.
TEST(GgufModelTest, CodesOf6BitsCountAsTheTargetPacksThem) {
  const ModelConfig config = *LoadModelConfig(kGolden + "/gguf/types.gguf");
  const auto packed = model::ModelWeightBytes(config, {DType::kF32, Quantization::kStored},
                                              DType::kF32, {}, 0, true);
  EXPECT_EQ(*BytesOf(config) - *packed, (64 + 32) * 256 * 2 / 8);
  EXPECT_FALSE(CpuPacks6Bits("amx_stand_in"));
  EXPECT_TRUE(CpuPacks6Bits("scalar"));
}

// Blocks of codebooks count as the file has them, not as the codes that they stand for.
TEST(GgufModelTest, BlocksThatAreKeptAreCountedAsInTheFile) {
  ModelConfig config = *LoadModelConfig(kGolden + "/gguf/types_of_grids.gguf");
  const auto of_blocks = BytesOf(config);
  StoredMatrices matrices = *config.quantization.matrices;
  QuantScheme& scheme = matrices.scheme_of.at("model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(scheme.block_bytes, 98);  // IQ3_XXS, one block an output
  scheme.block_inputs = 0;
  config.quantization.matrices = std::make_shared<const StoredMatrices>(matrices);
  // 256 codes, 8 steps and a factor, for each of 256 outputs.
  EXPECT_EQ(*BytesOf(config) - *of_blocks, 256 * (256 + 8 + 2 - 98));
}

}  // namespace
}  // namespace minisgl
