// What a model directory says about vectors of texts, and what its modules make of a state.
#include "minisgl/weights/vector_pipeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace minisgl {
namespace {

constexpr const char* kModules =
    R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
constexpr const char* kLast = R"({"word_embedding_dimension": 4, "pooling_mode_lasttoken": true})";

class VectorPipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    Put("modules.json", kModules);
    Put("1_Pooling/config.json", kLast);
  }
  void Put(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(folder_.Path(name)).parent_path());
    folder_.Write(name, content);
  }
  Result<VectorPipeline> Load() const { return LoadVectorPipeline(folder_.Path(""), 4); }
  std::string Error() const {
    const auto loaded = Load();
    return loaded.ok() ? "" : loaded.status().message();
  }
  // Loads a Dense of 4 to 2 without bias.
  void AddDense(const std::string& config) {
    Put("modules.json",
        R"([{"path": "", "type": "T.Transformer"}, {"path": "1_Pooling", "type": "Pooling"},
                      {"path": "2_Dense", "type": "a.b.Dense"}])");
    Put("2_Dense/config.json", config);
    std::string file(8, '\0');
    const std::string header =
        R"({"linear.weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}})";
    file[0] = static_cast<char>(header.size());
    file += header;
    const float weight[] = {1, 2, 3, 4, 0, -1, 0, 0};
    file.append(reinterpret_cast<const char*>(weight), sizeof(weight));
    Put("2_Dense/model.safetensors", file);
  }

  TemporaryFolder folder_;
};

TEST_F(VectorPipelineTest, WithoutModulesAVectorIsTheMeanOfTheStates) {
  const TemporaryFolder empty;
  const auto pipeline = LoadVectorPipeline(empty.Path(""), 4);
  ASSERT_TRUE(pipeline.ok());
  EXPECT_FALSE(pipeline->is_stated);
  EXPECT_EQ(pipeline->pooling, Pooling::kMean);
  EXPECT_EQ(FinishVector(*pipeline, {3, 4}, std::nullopt, false), std::vector<float>({3, 4}));
  EXPECT_EQ(FinishVector(*pipeline, {3, 4}, std::nullopt, true), std::vector<float>({0.6F, 0.8F}));
}

TEST_F(VectorPipelineTest, ModulesPromptsAndBoundsAreRead) {
  Put("sentence_bert_config.json", R"({"max_seq_length": 77, "do_lower_case": true})");
  Put("config_sentence_transformers.json",
      R"({"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": "query",
                    "truncate_dim": 3})");
  const auto pipeline = Load();
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
  EXPECT_TRUE(pipeline->is_stated && pipeline->normalizes());
  EXPECT_EQ(pipeline->pooling, Pooling::kLast);
  EXPECT_EQ(pipeline->max_tokens, 77);
  EXPECT_TRUE(pipeline->lowercases);
  EXPECT_EQ(pipeline->dimensions, 3);
  EXPECT_EQ(pipeline->default_prompt, "Q: ");
  ASSERT_NE(pipeline->FindPrompt("document"), nullptr);
  EXPECT_EQ(pipeline->FindPrompt("passage"), nullptr);
  // Cut, and normalised again.
  const std::vector<float> vector = FinishVector(*pipeline, {3, 4, 100, 0}, 2, false);
  ASSERT_EQ(vector.size(), 2u);
  EXPECT_NEAR(vector[0], 0.6F, 1e-6);
  EXPECT_EQ(FinishVector(*pipeline, {0, 0, 0, 0}, std::nullopt, false),
            std::vector<float>({0, 0, 0, 0}));
}

TEST_F(VectorPipelineTest, TheTokenizersBoundCountsIfTheModelStatesNone) {
  Put("tokenizer_config.json", R"({"model_max_length": 512})");
  EXPECT_EQ(Load()->max_tokens, 512);
  Put("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(Load()->max_tokens, std::nullopt);
}

TEST_F(VectorPipelineTest, NewerFilesNameThePooling) {
  const struct {
    const char* name;
    Pooling pooling;
  } cases[] = {{"cls", Pooling::kFirst},
               {"mean", Pooling::kMean},
               {"max", Pooling::kMax},
               {"lasttoken", Pooling::kLast},
               {"weightedmean", Pooling::kWeightedMean},
               {"mean_sqrt_len_tokens", Pooling::kMeanSqrt}};
  for (const auto& [name, pooling] : cases) {
    Put("1_Pooling/config.json",
        std::string(R"({"embedding_dimension": 4, "pooling_mode": ")") + name + "\"}");
    const auto pipeline = Load();
    ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
    EXPECT_EQ(pipeline->pooling, pooling) << name;
  }
}

TEST_F(VectorPipelineTest, DenseModulesApply) {
  AddDense(R"({"in_features": 4, "out_features": 2, "bias": false,
               "activation_function": "torch.nn.modules.linear.Identity"})");
  const auto plain = Load();
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(FinishVector(*plain, {1, 1, 1, 1}, std::nullopt, false), std::vector<float>({10, -1}));
  AddDense(R"({"in_features": 4, "out_features": 2, "bias": false})");
  const std::vector<float> vector = FinishVector(*Load(), {0, 1, 0, 0}, std::nullopt, false);
  EXPECT_NEAR(vector[0], std::tanh(2), 1e-6);
  EXPECT_NEAR(vector[1], std::tanh(-1), 1e-6);
}

TEST_F(VectorPipelineTest, EachFaultIsNamed) {
  const struct {
    const char* file;
    const char* content;
    const char* message;
  } cases[] = {
      {"modules.json", "{}", "an array of 1 to 16 modules is needed"},
      {"modules.json", "[", "modules.json"},
      {"modules.json", "[1]", "module 0 needs a type and a path"},
      {"modules.json", R"([{"path": "", "type": "Transformer"}])", "no module Pooling"},
      {"modules.json", R"([{"path": "", "type": "x.WordEmbeddings"}])",
       "found type WordEmbeddings; Transformer, Pooling, Dense and Normalize are built"},
      {"modules.json", R"([{"path": "../x", "type": "Transformer"}])", "the name of a folder"},
      {"modules.json",
       R"([{"path": "", "type": "Transformer"}, {"path": "3_Normalize", "type": "Normalize"}])",
       "module 1: found Normalize in \"3_Normalize\""},
      {"1_Pooling/config.json", "{}", "found none"},
      {"1_Pooling/config.json", R"({"pooling_mode": "median"})", "\"pooling_mode\""},
      {"1_Pooling/config.json",
       R"({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true})",
       "found another pooling as well"},
      {"1_Pooling/config.json", R"({"pooling_mode": "cls", "include_prompt": 1})",
       "include_prompt"},
      {"1_Pooling/config.json", R"({"pooling_mode": "cls", "embedding_dimension": 5})",
       "4 is needed, the width of the model's states"},
      {"sentence_bert_config.json", R"({"do_lower_case": 1})", "do_lower_case"},
      {"config_sentence_transformers.json", R"({"prompts": {"q": 1}})",
       "an object of texts is needed"},
      {"config_sentence_transformers.json", R"({"default_prompt_name": "q"})",
       "a name of prompts is needed"},
  };
  for (const auto& [file, content, message] : cases) {
    SetUp();
    Put(file, content);
    EXPECT_NE(Error().find(message), std::string::npos) << content << ": " << Error();
    Put(file, "{}");
  }
}

TEST_F(VectorPipelineTest, ADenseModuleMustFit) {
  AddDense(R"({"in_features": 3, "out_features": 2, "bias": false})");
  EXPECT_NE(Error().find("4 is needed, what the module before gives"), std::string::npos);
  AddDense(R"({"in_features": 4, "out_features": 3, "bias": false})");
  EXPECT_NE(Error().find("tensor linear.weight has shape [2, 4], [3, 4] is needed"),
            std::string::npos)
      << Error();
  AddDense(R"({"in_features": 4, "out_features": 2})");
  EXPECT_NE(Error().find("linear.bias"), std::string::npos);
  AddDense(
      R"({"in_features": 4, "out_features": 2, "bias": false, "activation_function": "x.ReLU"})");
  EXPECT_NE(Error().find("Identity and Tanh are supported"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
