// Heads of classifiers and reward models: their layers, labels and scales, and files that do not
// fit.
#include "minisgl/weights/score_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "model/tiny_model.h"

namespace minisgl {
namespace {

class ScoreHeadTest : public ::testing::Test {
 protected:
  ScoreHeadTest() {
    config_.hidden_size = 2;
    config_.vocab_size = 10;
  }
  Result<ScoreHead> Load(const std::vector<FileTensor>& tensors, const std::string& config) {
    WriteCheckpoint(dir_, tensors);
    std::ofstream(dir_.path() + "/config.json") << config;
    return LoadScoreHead(dir_.path(), config_);
  }
  static FileTensor Three() { return FileTensor::F32("score.weight", {3, 2}, {1, 0, 0, 1, 1, 1}); }

  const TinyModelDir dir_;
  ModelConfig config_;
};

TEST_F(ScoreHeadTest, SeveralLabelsExcludeEachOther) {
  const auto head = Load({Three()}, R"({"id2label": {"0": "a", "1": "b", "2": "c"}})");
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ(head->labels, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(ScoresOf(*head, {1, 2}, true), (std::vector<float>{1, 2, 3}));
  const std::vector<float> scores = ScoresOf(*head, {1, 2}, false);
  EXPECT_NEAR(scores[2], 0.66524096, 1e-6);
  EXPECT_NEAR(scores[0] + scores[1] + scores[2], 1, 1e-6);
  EXPECT_EQ(ScoresOf(*head, {1e30F, 0}, false), (std::vector<float>{0.5, 0, 0.5}));
}

TEST_F(ScoreHeadTest, TheProblemSaysTheScale) {
  const FileTensor one = FileTensor::F32("score.weight", {1, 2}, {1, 1});
  using Scale = ScoreHead::Scale;
  EXPECT_EQ(Load({one}, "{}")->scale, Scale::kSigmoid);
  EXPECT_EQ(Load({one}, R"({"problem_type": "regression"})")->scale, Scale::kNone);
  EXPECT_EQ(Load({one}, R"({"architectures": ["LlamaForRewardModel"]})")->scale, Scale::kNone);
  EXPECT_EQ(Load({Three()}, R"({"problem_type": "multi_label_classification"})")->scale,
            Scale::kSigmoid);
  EXPECT_EQ(Load({Three()}, R"({"problem_type": "single_label_classification"})")->scale,
            Scale::kSoftmax);
  EXPECT_FALSE(Load({one}, R"({"problem_type": "other"})").ok());
}

TEST_F(ScoreHeadTest, LabelsWithoutNamesOrWithEqualOnesAreNumbered) {
  const std::vector<std::string> numbered = {"LABEL_0", "LABEL_1", "LABEL_2"};
  EXPECT_EQ(Load({Three()}, "{}")->labels, numbered);
  EXPECT_EQ(Load({Three()}, R"({"id2label": {"0": "a", "1": "a", "2": "b"}})")->labels, numbered);
  EXPECT_EQ(Load({Three()}, R"({"id2label": [1]})")->labels, numbered);
  EXPECT_EQ(Load({Three()}, R"({"id2label": {"0": 7, "1": "b", "7": "c"}})")->labels,
            (std::vector<std::string>{"LABEL_0", "b", "LABEL_2"}));
}

TEST_F(ScoreHeadTest, ARewardModelHasTwoLayers) {
  const auto head = Load({FileTensor::F32("score.0.weight", {2, 2}, {1, 0, 0, -1}),
                          FileTensor::F32("score.0.bias", {2}, {0, 1}),
                          FileTensor::F32("score.2.weight", {1, 2}, {2, 3}),
                          FileTensor::F32("score.2.bias", {1}, {0.5})},
                         R"({"architectures": ["Qwen2ForRewardModel"]})");
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ(ScoresOf(*head, {1, 5}, false), (std::vector<float>{2.5}));
  EXPECT_EQ(ScoresOf(*head, {-1, -1}, false), (std::vector<float>{6.5}));
}

TEST_F(ScoreHeadTest, EncodersHaveTheHeadsOfTheirClasses) {
  config_.is_encoder = true;
  config_.model_type = "roberta";
  config_.text_prefix = "roberta.";
  config_.norm_eps = 0;
  const FileTensor dense = FileTensor::F32("classifier.dense.weight", {2, 2}, {1, 0, 0, 2});
  const FileTensor dense_bias = FileTensor::F32("classifier.dense.bias", {2}, {0, 1});
  const FileTensor out = FileTensor::F32("classifier.out_proj.weight", {1, 2}, {1, 1});
  const FileTensor out_bias = FileTensor::F32("classifier.out_proj.bias", {1}, {0.5});
  const auto roberta = Load({dense, dense_bias, out, out_bias}, R"({"pad_token_id": 1})");
  ASSERT_TRUE(roberta.ok()) << roberta.status().message();
  EXPECT_EQ(roberta->pooling, Pooling::kFirst);
  EXPECT_FALSE(roberta->pad_id.has_value()) << "padding is a matter of decoders";
  EXPECT_NEAR(ScoresOf(*roberta, {1, 2}, true)[0], std::tanh(1) + std::tanh(5) + 0.5, 1e-6);
  EXPECT_FALSE(Load({dense, out, out_bias}, "{}").ok()) << "without a bias";
  config_.model_type = "modernbert";
  config_.text_prefix = "model.";
  const std::vector<FileTensor> modern = {
      FileTensor::F32("head.dense.weight", {2, 2}, {1, 0, 0, 1}),
      FileTensor::F32("head.norm.weight", {2}, {2, 3}),
      FileTensor::F32("classifier.weight", {1, 2}, {1, 1}),
      FileTensor::F32("classifier.bias", {1}, {0})};
  const auto mean =
      Load(modern, R"({"classifier_pooling": "mean", "classifier_activation": "relu"})");
  ASSERT_TRUE(mean.ok()) << mean.status().message();
  EXPECT_EQ(mean->pooling, Pooling::kMean);
  // relu gives 0 and 4, the norm -1 and 1, times 2 and 3.
  EXPECT_NEAR(ScoresOf(*mean, {-3, 4}, true)[0], 1, 1e-6);
  EXPECT_EQ(Load(modern, "{}")->pooling, Pooling::kFirst);
  for (const char* const config :
       {R"({"classifier_pooling": "max"})", R"({"classifier_activation": "mish"})",
        R"({"classifier_bias": true})"}) {
    EXPECT_FALSE(Load(modern, config).ok()) << config;
  }
}

TEST_F(ScoreHeadTest, HeadsThatDoNotFitAreRefused) {
  EXPECT_FALSE(Load({FileTensor::F32("score.weight", {1, 3}, {1, 1, 1})}, "{}").ok());
  EXPECT_FALSE(Load({FileTensor::F32("score.weight", {2}, {1, 1})}, "{}").ok());
  EXPECT_FALSE(Load({Three(), FileTensor::F32("score.bias", {2}, {1, 1})}, "{}").ok());
  EXPECT_FALSE(Load({FileTensor::F32("score.0.weight", {1, 2}, {1, 1})}, "{}").ok());
  EXPECT_EQ(Load({FileTensor::F32("other.weight", {1, 2}, {1, 1})}, "{}").status().code(),
            StatusCode::kUsage);
  EXPECT_FALSE(Load({Three()}, R"({"pad_token_id": 10})").ok());
  EXPECT_EQ(Load({Three()}, R"({"pad_token_id": 9})")->pad_id, 9);
}

// Converted files of BERT have the last product alone.
TEST_F(ScoreHeadTest, AHeadWithoutItsFirstProductIsRefused) {
  config_.is_encoder = true;
  const auto head = Load({FileTensor::F32("classifier.out_proj.weight", {1, 2}, {1, 1}),
                          FileTensor::F32("classifier.out_proj.bias", {1}, {0.5})},
                         "{}");
  ASSERT_FALSE(head.ok());
  EXPECT_NE(head.status().message().find("use the model's directory"), std::string::npos)
      << head.status().message();
}

TEST_F(ScoreHeadTest, TwoTokensOfTheOutputHeadAreOneScore) {
  config_.tie_word_embeddings = true;
  WriteCheckpoint(dir_, {FileTensor::F32("model.embed_tokens.weight", {3, 2}, {1, 2, 3, 4, 5, 9})});
  const auto head = LoadYesNoHead(dir_.path(), config_, 2, 0);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ(ScoresOf(*head, {1, 1}, true), (std::vector<float>{11}));
  EXPECT_NEAR(ScoresOf(*head, {0, 0}, false)[0], 0.5, 1e-7);
  EXPECT_FALSE(LoadYesNoHead(dir_.path(), config_, 3, 0).ok()) << "outside the matrix";
}

}  // namespace
}  // namespace minisgl
