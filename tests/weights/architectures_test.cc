// The tensors that a configuration asks for: the tensors of the reference's models, name by name,
// and rules that hold for all architectures.
#include "weights/architectures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "minisgl/weights/checkpoint.h"
#include "test_files.h"
#include "weights/architecture_table.h"

namespace minisgl {
namespace {

// Sizes that differ from each other, so that no symbol can stand for another.
ModelConfig SmallConfig(const char* architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = 97;
  config.hidden_size = 40;
  config.intermediate_size = 56;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 3;
  config.head_dim = 10;
  config.layers.resize(2);
  return config;
}

const weights::TensorSpec* SpecNamed(const std::vector<weights::TensorSpec>& specs,
                                     std::string_view name) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const weights::TensorSpec& spec) {
    return spec.name == name;
  });
  return found == specs.end() ? nullptr : &*found;
}

// The models that the reference made: their files hold exactly the tensors that the configuration
// asks for.
TEST(ArchitecturesTest, RequiredTensorsAreThoseOfTheReference) {
  std::set<std::string> architectures;
  std::vector<std::filesystem::path> folders;
  for (const char* models : {"/tests/golden/models", "/tests/golden/pooling"}) {
    const std::string all = std::string(MINISGL_SOURCE_DIR) + models;
    for (const auto& entry : std::filesystem::directory_iterator(all)) {
      folders.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& folder : folders) {
    SCOPED_TRACE(folder);
    const auto config = LoadModelConfig(folder);
    EXPECT_TRUE(config.ok()) << config.status().message();
    // A quantized matrix is several tensors.
    if (!config.ok() || !config->quantization.empty()) continue;
    const auto checkpoint = Checkpoint::Open(folder);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto required = weights::RequiredTensors(*config);
    EXPECT_TRUE(required.ok()) << required.status().message();
    if (!checkpoint.ok() || !required.ok()) continue;
    std::map<std::string, std::vector<int64_t>> wanted, found;
    for (const weights::RequiredTensor& tensor : *required) {
      EXPECT_TRUE(wanted.emplace(tensor.name, tensor.shape).second) << tensor.name << " twice";
    }
    for (const std::string& name : (*checkpoint)->Names()) {
      if (!weights::IsIgnorable(*config, name)) found[name] = (*checkpoint)->Get(name)->shape;
    }
    EXPECT_EQ(wanted, found);
    architectures.insert(config->architecture);
  }
  architectures.insert("CamembertModel");  // RobertaModel under another name
  for (const weights::Architecture& architecture : weights::Architectures()) {
    EXPECT_TRUE(architectures.contains(architecture.name)) << "no model of " << architecture.name;
  }
}

TEST(ArchitecturesTest, NamesAreUnique) {
  std::set<std::string> names, types;
  for (const weights::Architecture& architecture : weights::Architectures()) {
    EXPECT_TRUE(names.insert(architecture.name).second) << architecture.name;
    // A class of its own calls its type "bert". Files that name no class are BERT's.
    const bool is_new = types.insert(architecture.model_type).second;
    EXPECT_EQ(is_new, std::string(architecture.name) != "BertModel") << architecture.model_type;
    EXPECT_EQ(weights::FindArchitecture(architecture.name), &architecture);
    EXPECT_NE(weights::SupportedArchitectures().find(architecture.name), std::string::npos);
  }
  EXPECT_EQ(names.size(), 67u);
  EXPECT_EQ(weights::FindArchitecture("Ernie4_5_ForCausalLM"),
            weights::FindArchitecture("Ernie4_5ForCausalLM"));
  EXPECT_EQ(weights::FindArchitecture(""), nullptr);
  EXPECT_EQ(weights::FindArchitecture("llama"), nullptr);
}

TEST(ArchitecturesTest, LayerNumbersAndSizesStandInTheNames) {
  const ModelConfig config = SmallConfig("LlamaForCausalLM");
  const auto required = weights::RequiredTensors(config);
  ASSERT_TRUE(required.ok());
  EXPECT_EQ(required->size(), 3u + 2u * 9u);
  const auto value = std::find_if(required->begin(), required->end(), [](const auto& tensor) {
    return tensor.name == "model.layers.1.self_attn.v_proj.weight";
  });
  ASSERT_NE(value, required->end());
  EXPECT_EQ(value->shape, (std::vector<int64_t>{30, 40}));
  EXPECT_FALSE(value->is_norm);
}

TEST(ArchitecturesTest, FusedTensorsStandForTheirParts) {
  const auto phi = weights::LayerTensors(SmallConfig("Phi3ForCausalLM"), 0);
  const weights::TensorSpec* qkv = SpecNamed(phi, "model.layers.0.self_attn.qkv_proj.weight");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->role, weights::TensorRole::kQkv);
  EXPECT_EQ(qkv->dims, (std::vector<std::string>{"(H+2HKV)*E", "D"}));
  const weights::TensorSpec* gate_up = SpecNamed(phi, "model.layers.0.mlp.gate_up_proj.weight");
  ASSERT_NE(gate_up, nullptr);
  EXPECT_EQ(gate_up->dims, (std::vector<std::string>{"2I", "D"}));
  EXPECT_EQ(SpecNamed(phi, "model.layers.0.mlp.up_proj.weight"), nullptr);
  EXPECT_EQ(SpecNamed(phi, "model.layers.0.self_attn.q_proj.weight"), nullptr);
}

TEST(ArchitecturesTest, ExpertsReplaceTheFeedForwardOfTheirLayers) {
  ModelConfig config = SmallConfig("Qwen2MoeForCausalLM");
  config.experts = {.num_experts = 3,
                    .num_chosen = 2,
                    .intermediate_size = 8,
                    .shared_intermediate_size = 12,
                    .shared_gate = true};
  config.layers[1].has_experts = true;
  const auto dense = weights::LayerTensors(config, 0), sparse = weights::LayerTensors(config, 1);
  EXPECT_NE(SpecNamed(dense, "model.layers.0.mlp.up_proj.weight"), nullptr);
  EXPECT_EQ(SpecNamed(dense, "model.layers.0.mlp.gate.weight"), nullptr);
  EXPECT_EQ(SpecNamed(sparse, "model.layers.1.mlp.up_proj.weight"), nullptr);
  const weights::TensorSpec* last =
      SpecNamed(sparse, "model.layers.1.mlp.experts.2.down_proj.weight");
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->index, 2);
  EXPECT_EQ(last->dims, (std::vector<std::string>{"D", "J"}));
  EXPECT_EQ(SpecNamed(sparse, "model.layers.1.mlp.experts.3.down_proj.weight"), nullptr);
  EXPECT_NE(SpecNamed(sparse, "model.layers.1.mlp.shared_expert_gate.weight"), nullptr);
}

TEST(ArchitecturesTest, ExpertsStoredAsOneTensorSayTheirOrder) {
  ModelConfig config = SmallConfig("GptOssForCausalLM");
  config.feed_forward_bias = config.attention_sinks = true;
  config.experts = {.num_experts = 3, .num_chosen = 2, .intermediate_size = 8};
  for (LayerConfig& layer : config.layers) layer.has_experts = true;
  auto specs = weights::LayerTensors(config, 0);
  const std::map<std::string, weights::TensorOrder> orders = {
      {"mlp.experts.gate_up_proj", weights::TensorOrder::kInputsFirstInterleaved},
      {"mlp.experts.gate_up_proj_bias", weights::TensorOrder::kInterleaved},
      {"mlp.experts.down_proj", weights::TensorOrder::kInputsFirst},
      {"mlp.experts.down_proj_bias", weights::TensorOrder::kPlain},
      {"mlp.router.bias", weights::TensorOrder::kPlain},
      {"self_attn.sinks", weights::TensorOrder::kPlain},
  };
  for (const auto& [name, order] : orders) {
    const weights::TensorSpec* spec = SpecNamed(specs, "model.layers.0." + name);
    ASSERT_NE(spec, nullptr) << name;
    EXPECT_EQ(spec->order, order) << name;
  }
  config.architecture = "GraniteMoeForCausalLM";
  config.feed_forward_bias = config.attention_sinks = false;
  specs = weights::LayerTensors(config, 0);
  const weights::TensorSpec* fused =
      SpecNamed(specs, "model.layers.0.block_sparse_moe.input_linear.weight");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->dims, (std::vector<std::string>{"X", "2J", "D"}));
  EXPECT_EQ(fused->order, weights::TensorOrder::kPlain);
}

TEST(ArchitecturesTest, HeadsMayHaveNormsOfTheirOwn) {
  ModelConfig config = SmallConfig("StableLmForCausalLM");
  config.qk_norm = QkNorm::kHeadOwn;
  const auto specs = weights::LayerTensors(config, 0);
  const weights::TensorSpec* last =
      SpecNamed(specs, "model.layers.0.self_attn.q_layernorm.norms.5.weight");
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->index, 5);
  EXPECT_TRUE(last->is_norm());
  EXPECT_NE(SpecNamed(specs, "model.layers.0.self_attn.k_layernorm.norms.2.weight"), nullptr);
  EXPECT_EQ(SpecNamed(specs, "model.layers.0.self_attn.k_layernorm.norms.3.weight"), nullptr);
}

TEST(ArchitecturesTest, OfATiedModelTheHeadIsNotAskedFor) {
  ModelConfig config = SmallConfig("LlamaForCausalLM");
  EXPECT_NE(SpecNamed(weights::ModelTensors(config), "lm_head.weight"), nullptr);
  EXPECT_FALSE(weights::IsIgnorable(config, "lm_head.weight"));
  config.tie_word_embeddings = true;
  EXPECT_EQ(SpecNamed(weights::ModelTensors(config), "lm_head.weight"), nullptr);
  EXPECT_TRUE(weights::IsIgnorable(config, "lm_head.weight"));
  EXPECT_TRUE(weights::IsIgnorable(config, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(weights::IsIgnorable(config, "model.layers.0.self_attn.q_proj.bias"));
}

TEST(ArchitecturesTest, LayersThatPredictFurtherTokensAreIgnored) {
  ModelConfig config = SmallConfig("Glm4MoeForCausalLM");
  const auto after = [&](int32_t layers, const char* name) {
    return fmt::format("model.layers.{}.{}", config.num_layers + layers, name);
  };
  EXPECT_FALSE(weights::IsIgnorable(config, after(0, "eh_proj.weight")));
  EXPECT_FALSE(weights::IsIgnorable(config, "model.mtp_emb_norm.0.weight"));
  config.num_prediction_layers = 2;
  EXPECT_TRUE(weights::IsIgnorable(config, "model.mtp_emb_norm.0.weight"));
  EXPECT_TRUE(weights::IsIgnorable(config, after(0, "eh_proj.weight")));
  EXPECT_TRUE(weights::IsIgnorable(config, after(1, "mlp.experts.3.up_proj.weight_scale")));
  EXPECT_FALSE(weights::IsIgnorable(config, after(2, "eh_proj.weight")));
  EXPECT_FALSE(weights::IsIgnorable(config, after(-1, "eh_proj.weight")));
  for (const char* name : {"model.layers.", "model.layers.x.y", "model.layers.2147483648.w",
                           "model.layers.-1.w", "model.layers.3", "layers.3.w"}) {
    EXPECT_FALSE(weights::IsIgnorable(config, name)) << name;
  }
}

TEST(ArchitecturesTest, AbsurdSizesAndUnknownNamesAreErrors) {
  ModelConfig config = SmallConfig("LlamaForCausalLM");
  config.intermediate_size = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(weights::SymbolSize(config, "2I"), std::nullopt);
  EXPECT_EQ(weights::SymbolSize(config, "1"), 1);
  config.architecture = "Phi3ForCausalLM";
  ExpectError(weights::RequiredTensors(config).status(), StatusCode::kBadInput, "2I");
  config.architecture = "Mystery\nForCausalLM";
  ExpectError(weights::RequiredTensors(config).status(), StatusCode::kBadInput, "LlamaForCausalLM");
}

}  // namespace
}  // namespace minisgl
