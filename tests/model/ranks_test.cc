// The cut of a model for several ranks: each rank's tensors have the sizes of its configuration,
// all ranks together have everything, and query heads are where their KV heads are.
#include "minisgl/model/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "golden_models.h"
#include "model/rank_cut.h"
#include "model/tensor_arrangement.h"
#include "tiny_model.h"

namespace minisgl {
namespace {

using Axis = model::TensorCut::Axis;
using Role = weights::TensorRole;
using model::Span;

int64_t Count(const std::vector<Span>& spans) {
  int64_t count = 0;
  for (const Span& span : spans) count += span.count;
  return count;
}

// Elements of the tensors of each role.
std::map<Role, int64_t> ElementsByRole(const ModelConfig& config,
                                       const std::vector<weights::TensorSpec>& specs) {
  std::map<Role, int64_t> elements;
  for (const weights::TensorSpec& spec : specs) {
    int64_t product = 1;
    for (const std::string& symbol : spec.dims) {
      product *= *weights::SymbolSize(config, symbol, spec.layer);
    }
    elements[spec.role] += product;
  }
  return elements;
}

// A rank's part of the fused product before a state, which is cut by channels alone.
std::vector<Span> WithGatesAndScalars(const ModelConfig& config, Mixer mixer, const Rank& rank,
                                      std::vector<Span> channels) {
  const StateConfig& states = config.states;
  const bool is_delta = mixer == Mixer::kDeltaNet;
  if (mixer == Mixer::kShortConv || (is_delta && !states.by_group)) return channels;
  for (Span span : model::StateGateSpans(states, rank)) {
    channels.push_back({states.conv_width + span.first, span.count});
  }
  for (Span span : model::StateScalarSpans(states, is_delta ? 0 : states.num_heads, rank)) {
    channels.push_back({states.conv_width + states.inner_width() + span.first, span.count});
  }
  return channels;
}

class CutModel {
 public:
  CutModel(const ModelConfig& config, int32_t num_ranks) : config_(config), num_ranks_(num_ranks) {}

  void CheckLayer(int32_t layer) const {
    const auto specs_of = [&](const ModelConfig& config) {
      return ElementsByRole(
          config, layer < 0 ? weights::ModelTensors(config) : weights::LayerTensors(config, layer));
    };
    const std::map<Role, int64_t> whole = specs_of(config_);
    for (const auto& [role, elements] : whole) {
      SCOPED_TRACE(testing::Message() << "layer " << layer << ", role " << static_cast<int>(role));
      std::vector<Span> of_all;
      std::vector<int64_t> counts;
      for (int32_t index = 0; index < num_ranks_; ++index) {
        const Rank rank = {index, num_ranks_};
        const model::TensorCut cut = model::CutOf(config_, layer, role, rank);
        const ModelConfig own = RankConfig(config_, rank);
        if (cut.axis == Axis::kWhole) {
          EXPECT_EQ(specs_of(own).at(role), elements);
        }
        if (cut.axis != Axis::kOutputs && cut.axis != Axis::kInputs) continue;
        std::vector<Span> spans = cut.spans;
        if (role == Role::kStateInput || role == Role::kStateInputBias) {
          spans = WithGatesAndScalars(config_, MixerOf(layer), rank, std::move(spans));
        }
        counts.push_back(Count(spans));
        of_all.insert(of_all.end(), spans.begin(), spans.end());
      }
      if (of_all.empty()) continue;
      const int64_t width = CheckCover(of_all);
      for (int32_t index = 0; index < num_ranks_; ++index) {
        const ModelConfig own = RankConfig(config_, {index, num_ranks_});
        EXPECT_EQ(specs_of(own).at(role), counts[static_cast<size_t>(index)] * (elements / width))
            << "rank " << index;
      }
    }
  }

  // Query heads follow the KV heads that they read.
  void CheckHeads() const {
    for (const LayerShape& shape : LayerShapes(config_)) {
      for (int32_t index = 0; index < num_ranks_; ++index) {
        const Rank rank = {index, num_ranks_};
        const Span heads = model::HeadSpan(shape.num_heads, rank);
        const Span kv_heads = model::HeadSpan(shape.num_kv_heads, rank);
        for (int64_t i = 0; i < heads.count; ++i) {
          const int64_t read = kv_heads.first + i / (heads.count / kv_heads.count);
          EXPECT_EQ(read, (heads.first + i) / (shape.num_heads / shape.num_kv_heads));
        }
      }
    }
  }

 private:
  Mixer MixerOf(int32_t layer) const { return config_.layers[static_cast<size_t>(layer)].mixer; }

  // Expects that nothing is left out, and returns how much there is.
  static int64_t CheckCover(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.first < b.first; });
    int64_t end = 0;
    for (const Span& span : spans) {
      EXPECT_GT(span.count, 0);
      EXPECT_LE(span.first, end);
      end = std::max(end, span.first + span.count);
    }
    return end;
  }

  const ModelConfig& config_;
  const int32_t num_ranks_;
};

TEST(RanksTest, EveryTensorOfEveryArchitectureIsCut) {
  int num_cut = 0, num_models = 0;
  std::vector<std::string> refused;
  for (const GoldenModel& golden : AllGoldenModels()) {
    SCOPED_TRACE(golden.name);
    ++num_models;
    const bool is_demo = std::string(golden.name) == "wren";
    const auto config = LoadModelConfig(std::string(MINISGL_SOURCE_DIR) + "/tests/" +
                                        (is_demo ? "" : "golden/") + "models/" + golden.name);
    ASSERT_TRUE(config.ok()) << config.status().message();
    for (const int32_t num_ranks : {2, 4}) {
      if (!CheckRanks(*config, num_ranks).ok()) {
        if (num_ranks == 2) refused.push_back(golden.name);
        continue;
      }
      ++num_cut;
      const CutModel model(*config, num_ranks);
      model.CheckHeads();
      for (int32_t layer = -1; layer < config->num_layers; ++layer) model.CheckLayer(layer);
    }
  }
  EXPECT_GT(num_cut, num_models);
  // Three heads do not divide by two.
  EXPECT_EQ(refused, (std::vector<std::string>{"phi3_short", "stablelm", "quant_ct_fp8_block",
                                               "quant_fp8_block_latent", "quant_fp8_ue8m0"}));
}

TEST(RanksTest, MoreRanksThanKvHeadsRepeatThem) {
  ModelConfig config = TinyConfig();
  config.num_heads = 32;
  config.num_kv_heads = 8;
  for (int32_t index = 0; index < 16; ++index) {
    const Rank rank = {index, 16};
    EXPECT_EQ(RankConfig(config, rank).num_heads, 2);
    EXPECT_EQ(RankConfig(config, rank).num_kv_heads, 1);
    EXPECT_EQ(model::HeadSpan(config.num_heads, rank), (Span{index * 2, 2}));
    EXPECT_EQ(model::HeadSpan(config.num_kv_heads, rank), (Span{index / 2, 1}));
  }
  EXPECT_EQ(RankConfig(config, {1, 4}).num_kv_heads, 2);
}

TEST(RanksTest, FusedPartsAreCutOneByOne) {
  ModelConfig config = TinyConfig();  // 4 query heads on 2 KV heads of 8
  config.intermediate_size = 24;
  const auto spans = [&](Role role) { return model::CutOf(config, 0, role, {1, 2}).spans; };
  EXPECT_EQ(spans(Role::kQkv), (std::vector<Span>{{16, 16}, {32 + 8, 8}, {48 + 8, 8}}));
  EXPECT_EQ(spans(Role::kGateUp), (std::vector<Span>{{12, 12}, {24 + 12, 12}}));
  EXPECT_EQ(model::CutOf(config, 0, Role::kAttentionOutput, {1, 2}).axis, Axis::kInputs);
  EXPECT_EQ(spans(Role::kAttentionOutput), (std::vector<Span>{{16, 16}}));
  config.experts.num_experts = 2;
  config.experts.intermediate_size = 10;
  EXPECT_EQ(spans(Role::kExpertGateUpBias), (std::vector<Span>{{5, 5}, {15, 5}, {25, 5}, {35, 5}}));
}

TEST(RanksTest, OutputBiasesAreAddedOnce) {
  const ModelConfig config = TinyConfig();
  for (const Role role : {Role::kAttentionOutputBias, Role::kDownBias, Role::kExpertDownBias}) {
    EXPECT_EQ(model::CutOf(config, 0, role, {1, 2}).axis, Axis::kFirstRank);
  }
  EXPECT_EQ(model::CutOf(config, 0, Role::kUpBias, {1, 2}).axis, Axis::kOutputs);
  EXPECT_EQ(model::CutOf(config, 0, Role::kDownBias, {0, 1}).axis, Axis::kWhole);
}

TEST(RanksTest, FeaturesAreCutBetweenGroupsIfThereAreEnough) {
  ModelConfig config = TinyConfig();
  const auto bounds = [&](int64_t width, int32_t num_ranks) {
    std::vector<int64_t> firsts;
    for (int32_t i = 0; i < num_ranks; ++i) {
      firsts.push_back(model::FeatureSpan(config, width, {i, num_ranks}).first);
    }
    return firsts;
  };
  EXPECT_EQ(bounds(768, 4), (std::vector<int64_t>{0, 192, 384, 576}));
  EXPECT_EQ(bounds(150, 4), (std::vector<int64_t>{0, 37, 75, 112}));
  config.quantization.schemes = {{.group_inputs = 128}};
  EXPECT_EQ(bounds(768, 4), (std::vector<int64_t>{0, 128, 384, 512}));
  EXPECT_EQ(bounds(384, 4), (std::vector<int64_t>{0, 96, 192, 288}));  // three groups
}

TEST(RanksTest, WhatDoesNotDivideIsRefusedWithWhatWould) {
  ModelConfig config = TinyConfig();
  config.num_heads = 24;
  config.num_kv_heads = 8;
  config.intermediate_size = 4096;
  config.vocab_size = 4096;
  EXPECT_EQ(CheckRanks(config, 3).message(),
            "tensor_parallel 3: 8 KV heads do not divide; 2 or 4 or 8 or 24 would do");
  EXPECT_EQ(CheckRanks(config, 5).message(),
            "tensor_parallel 5: 24 query heads do not divide; 2 or 4 or 8 or 24 would do");
  EXPECT_EQ(CheckRanks(config, 5).code(), StatusCode::kUsage);
  EXPECT_TRUE(CheckRanks(config, 24).ok());
  config.intermediate_size = 20;
  EXPECT_EQ(CheckRanks(config, 24).message(),
            "tensor_parallel 24: the feed-forward part has 20 features; 2 or 4 or 8 would do");
  config.num_heads = 1;
  config.num_kv_heads = 1;
  EXPECT_EQ(CheckRanks(config, 2).message(),
            "tensor_parallel 2: 1 query heads do not divide, nor by any other number");
}

}  // namespace
}  // namespace minisgl
