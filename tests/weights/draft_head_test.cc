// Heads that draft: which files are one, what is read of them, and pairs that do not fit.
#include "minisgl/weights/draft_head.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

const std::string kHeads = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/draft_heads/";

class DraftHeadTest : public ::testing::Test {
 protected:
  DraftHeadTest() : target_(LoadModelConfig(kHeads + "target").value()) {}

  // The configuration of golden head `name`.
  static Json ConfigOf(const std::string& name) {
    return ParseJson(ReadFile(kHeads + name + "/config.json", 1 << 20).value()).value();
  }
  // Loads the files of `name` with another configuration.
  Result<ModelConfig> LoadWith(const std::string& name, const Json& config) {
    std::filesystem::copy_file(kHeads + name + "/model.safetensors",
                               folder_.Path("model.safetensors"),
                               std::filesystem::copy_options::overwrite_existing);
    folder_.Write("config.json", config.Dump());
    return LoadDraftHead(folder_.Path(""), target_);
  }
  void ExpectError(const std::string& name, const Json& config, const std::string& part) {
    const auto head = LoadWith(name, config);
    ASSERT_FALSE(head.ok()) << part;
    EXPECT_NE(head.status().message().find(part), std::string::npos) << head.status().message();
  }
  void ExpectErrorWith(const std::string& name, const char* key, Json value,
                       const std::string& part) {
    Json config = ConfigOf(name);
    config.Set(key, std::move(value));
    ExpectError(name, config, part);
  }

  const TemporaryFolder folder_;
  ModelConfig target_;
};

TEST_F(DraftHeadTest, ReadsWhatTheFilesSay) {
  const ModelConfig first = LoadDraftHead(kHeads + "eagle3", target_).value();
  EXPECT_EQ(first.prediction, PredictionLayer::kEagle);
  EXPECT_EQ(first.draft_head.target_layers, (std::vector<int32_t>{2, 3, 4})) << "L = 7";
  EXPECT_EQ(first.vocab_size, 64);
  EXPECT_EQ(first.draft_head.num_ids, 96);
  EXPECT_FALSE(first.draft_head.has_embedding || first.draft_head.adds_norm);
  ASSERT_NE(first.draft_head.row_ids, nullptr);
  EXPECT_EQ(first.draft_head.row_ids->size(), 64U);

  // SpecForge counts the outputs of layers, speculators their inputs.
  const ModelConfig ids = LoadDraftHead(kHeads + "eagle3_ids", target_).value();
  EXPECT_EQ(ids.draft_head.target_layers, (std::vector<int32_t>{1, 3, 6}));
  const ModelConfig other = LoadDraftHead(kHeads + "eagle3_speculators", target_).value();
  EXPECT_EQ(other.draft_head.target_layers, (std::vector<int32_t>{2, 4, 5}));
  EXPECT_TRUE(other.draft_head.has_embedding && other.draft_head.adds_norm);

  const ModelConfig block = LoadDraftHead(kHeads + "dflash", target_).value();
  EXPECT_EQ(block.prediction, PredictionLayer::kBlock);
  EXPECT_EQ(block.draft_head.target_layers, (std::vector<int32_t>{2, 4, 6}));
  EXPECT_EQ(block.draft_head.block_size, 8);
  EXPECT_EQ(block.draft_head.mask_id, 95);
  EXPECT_TRUE(block.draft_head.windows_are_causal && !block.draft_head.others_are_causal);
}

TEST_F(DraftHeadTest, OlderBlocksHaveTheirKeysBesideAllOthersAndNoLayers) {
  Json config = ConfigOf("dflash");
  std::erase_if(config.as_object(),
                [](const auto& member) { return member.first == "dflash_config"; });
  config.Set("mask_token_id", 95).Set("target_layer_ids", Json::Array{0, 2, 3});
  EXPECT_EQ(LoadWith("dflash", config)->draft_head.target_layers, (std::vector<int32_t>{1, 3, 4}));
  // Without the list the head reads as many as it has itself, two: its "fc" has inputs for three.
  std::erase_if(config.as_object(),
                [](const auto& member) { return member.first == "target_layer_ids"; });
  ExpectError("dflash", config,
              "\"fc.weight\" reads 96 numbers; 2 states of Qwen3ForCausalLM have 64");
}

TEST_F(DraftHeadTest, ADSparkHeadHasTransitionsAndTablesOfItsOwn) {
  const ModelConfig spark = LoadDraftHead(kHeads + "dspark", target_).value();
  EXPECT_EQ(spark.prediction, PredictionLayer::kBlock);
  EXPECT_TRUE(spark.draft_head.predicts_next);
  EXPECT_TRUE(spark.draft_head.has_embedding && spark.draft_head.has_head);
  EXPECT_EQ(spark.draft_head.transition_rank, 16);
  EXPECT_EQ(spark.draft_head.block_size, 4);
  EXPECT_EQ(spark.draft_head.target_layers, (std::vector<int32_t>{2, 4, 6}));
  const ModelConfig plain = LoadDraftHead(kHeads + "dspark_plain", target_).value();
  EXPECT_EQ(plain.draft_head.transition_rank, 0);
  EXPECT_TRUE(plain.draft_head.predicts_next);
  EXPECT_FALSE(LoadDraftHead(kHeads + "dflash", target_)->draft_head.predicts_next);

  ExpectErrorWith("dspark", "markov_head_type", "gated", "markov_head_type");
  ExpectErrorWith("dspark", "markov_rank", -1, "markov_rank");
  ExpectErrorWith("dspark", "markov_rank", 0, "tensor \"markov_head.markov_w1.weight\"");
  ExpectErrorWith("dspark", "vocab_size", 97, "the head has 97 tokens; the model has 96");
  for (const char* key : {"markov_rank", "enable_confidence_head"}) {
    Json config = ConfigOf("dflash");
    config.Set(key, 1);
    if (key == std::string("enable_confidence_head")) config.Set(key, true);
    ExpectError("dflash", config, "only DSpark heads have it");
  }
}

TEST_F(DraftHeadTest, ADirectorySaysWhetherItIsOne) {
  for (const char* name : {"eagle3", "eagle3_ids", "eagle3_speculators", "dflash", "dspark"}) {
    EXPECT_TRUE(IsDraftHead(kHeads + name)) << name;
  }
  EXPECT_FALSE(IsDraftHead(kHeads + "target"));
  EXPECT_FALSE(IsDraftHead(kHeads + "nothing"));
  const auto names = [this](const char* text) {
    folder_.Write("config.json", text);
    return IsDraftHead(folder_.Path(""));
  };
  EXPECT_TRUE(names(R"({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000})"));
  EXPECT_FALSE(names(R"({"architectures": ["LlamaForCausalLM"]})"));
  EXPECT_FALSE(names("[1]"));
  EXPECT_FALSE(names(R"({"architectures": [3]})"));
}

TEST_F(DraftHeadTest, KindsThatAreNotRunAreNamed) {
  for (const char* name :
       {"Gemma4DSparkModel", "DFlash2DraftModel", "EagleLlamaForCausalLM", "MedusaModel"}) {
    ExpectErrorWith("dflash", "architectures", Json::Array{name}, name);
    EXPECT_TRUE(IsDraftHead(folder_.Path(""))) << name;
  }
  ExpectErrorWith("eagle3_speculators", "speculators_model_type", "dflash", "Eagle3Speculator");
  for (const char* key : {"norm_before_fc", "fc_norm", "parallel_drafting"}) {
    ExpectErrorWith("eagle3", key, true, key);
  }
  ExpectErrorWith("eagle3", "eagle_config", ParseJson(R"({"use_aux_hidden_state": false})").value(),
                  "eagle_config.use_aux_hidden_state");
}

TEST_F(DraftHeadTest, AnAssistantReadsTheKeysOfTheLastLayersOfEachKind) {
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/assistant/";
  ModelConfig target = LoadModelConfig(folder + "target").value();
  const ModelConfig ordered = LoadDraftHead(folder + "ordered", target).value();
  EXPECT_EQ(ordered.prediction, PredictionLayer::kAssistant);
  // Layers 4 and 5 of the target have no keys of their own.
  EXPECT_EQ(ordered.draft_head.kv_layers, (std::vector<int32_t>{2, 2, 3}));
  EXPECT_EQ(ordered.draft_head.num_clusters, 8);
  EXPECT_EQ(ordered.draft_head.num_best, 3);
  EXPECT_EQ(ordered.draft_head.clusters->size(), 96U);
  EXPECT_EQ(LoadDraftHead(folder + "plain", target)->draft_head.clusters, nullptr);
  EXPECT_TRUE(IsDraftHead(folder + "plain"));

  const auto error = [&] { return LoadDraftHead(folder + "ordered", target).status().message(); };
  target.hidden_size = 48;
  EXPECT_NE(error().find("for a model of hidden size 32; this one has 48"), std::string::npos);
  target.hidden_size = 32;
  target.vocab_size = 128;
  EXPECT_NE(error().find("the assistant has 96 tokens"), std::string::npos) << error();
  target.vocab_size = 96;
  target.head_dim = 10;
  EXPECT_NE(error().find("layer 0 has 4 heads of 8; the model's keys there are 2 of 10"),
            std::string::npos)
      << error();
  EXPECT_FALSE(LoadDraftHead(folder + "ordered", target_).ok()) << "no layer has a window";
}

TEST_F(DraftHeadTest, PairsThatDoNotFitAreNamed) {
  target_.hidden_size = 64;
  ExpectError("eagle3", ConfigOf("eagle3"),
              "reads 96 numbers; 3 states of Qwen3ForCausalLM have 192");
  target_.hidden_size = 32;
  target_.num_layers = 5;
  ExpectError("eagle3", ConfigOf("eagle3"), "fewer than 6 layers");
  ExpectError("dflash", ConfigOf("dflash"), "a list of layers of the model, which has 5");
  target_.num_layers = 8;
  ExpectError("dflash", ConfigOf("dflash"), "for a model of 7 layers; this one has 8");
  target_.num_layers = 7;
  target_.vocab_size = 80;
  ExpectError("eagle3", ConfigOf("eagle3"), "the model has 80");
  ExpectError("dflash", ConfigOf("dflash"), "mask_token_id");
  target_.vocab_size = 96;
  ExpectErrorWith("eagle3", "target_hidden_size", 48, "hidden size 48; this one has 32");
  ExpectErrorWith("eagle3", "draft_vocab_size", 63, "has 64 elements; draft_vocab_size is 63");
  ExpectErrorWith("eagle3", "num_hidden_layers", 2, "heads of one layer");
  ExpectErrorWith("eagle3", "hidden_size", 64, "hidden_size is 64");
  ExpectErrorWith("eagle3_speculators", "eagle_aux_hidden_state_layer_ids", Json::Array{1, 7, 2},
                  "a list of layers of the model, which has 7");
  ExpectErrorWith("eagle3_speculators", "eagle_aux_hidden_state_layer_ids", Json::Array{1, -1, 2},
                  "a list of layers");
}

TEST_F(DraftHeadTest, TensorsOfNoPartAreNamed) {
  // Files of more layers than the configuration says.
  ExpectErrorWith("dflash", "num_hidden_layers", 1, "layer_types");
  Json config = ConfigOf("dflash");
  config.Set("num_hidden_layers", 1).Set("layer_types", Json::Array{"full_attention"});
  ExpectError("dflash", config, "tensor \"layers.1.input_layernorm.weight\" is of no part");
}

}  // namespace
}  // namespace minisgl
