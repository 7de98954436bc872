// Adapters beside a model: every answer is the one that transformers and peft give, alone and in
// one batch with other adapters and the base, under every schedule, bit for bit.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapted_model.h"
#include "engine/scheduled_run.h"
#include "minisgl/model/adapters.h"
#include "minisgl/model/model_list.h"
#include "minisgl/weights/adapter.h"
#include "weights/architectures.h"
#include "weights/stored_matrix.h"

namespace minisgl {
namespace {

struct AdapterSetting {
  int32_t page_size = 16, chunk = 256, num_pages = 0, num_ranks = 1, max_drafts = 0, depth = 1;
  int num_threads = 1;
  CacheKind cache = CacheKind::kRadix;
  int32_t rows = 64;
  int32_t max_adapters = INT32_MAX;
  bool drafts_by_itself = false;  // the model without adapters drafts
};

ScheduledRun RunCases(const AdaptedModel& model, const std::vector<AdaptedCase>& cases,
                      const AdapterSetting& setting) {
  ModelList models = model.List();
  models.SetAdapters(model.adapters, setting.max_adapters);
  if (setting.drafts_by_itself) {
    const auto drafter = MakeDecoderModel(ModelRole::kDrafter, model.config, "");
    MINISGL_CHECK(models.Add(drafter).ok(), "added");
  }
  auto plan = PlanMemory(models,
                         {.num_threads = setting.num_threads,
                          .num_ranks = setting.num_ranks,
                          .max_running_requests = setting.rows,
                          .max_prefill_tokens = setting.chunk,
                          .max_step_drafts = 8,
                          .max_seq_len = 64,
                          .page_size = setting.page_size,
                          .num_pages = setting.num_pages,
                          .weight_dtype = DType::kF32},
                         uint64_t{1} << 32);
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  EngineRanks ranks;
  if (setting.num_ranks > 1) {
    ranks.rendezvous = std::make_shared<Rendezvous>(setting.num_ranks, /*spins=*/false);
  }
  for (int32_t index = 0; index < setting.num_ranks; ++index) {
    auto ops = MakeCpuOps({.num_threads = setting.num_threads,
                           .target = TestedCpuTarget(),
                           .rank = {index, ranks.rendezvous}});
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    ranks.ops.push_back(std::move(ops).value());
  }
  auto engine = MakeModelEngine(models, *model.checkpoint, *plan, std::move(ranks));
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  SchedulerOptions options;
  options.max_prefill_tokens = setting.chunk;
  options.cache = setting.cache;
  options.adapter_source = (*engine)->adapter_source();
  options.max_drafts = setting.max_drafts;
  if (setting.max_drafts > 0 && !setting.drafts_by_itself) options.drafter = MakeNgramDrafter();
  return RunScheduled(engine->get(), options, RequestsOf(model, cases), setting.depth);
}

// The model of dense weights in f32 that a quantized one stands for.
AdaptedModel Expanded(const AdaptedModel& model) {
  AdaptedModel plain;
  plain.config = model.config;
  plain.config.quantization = {};
  plain.adapters = model.adapters;
  auto memory = std::make_shared<std::vector<std::vector<float>>>();
  std::map<std::string, TensorView> views;
  std::vector<weights::TensorSpec> specs = weights::ModelTensors(model.config);
  for (int32_t layer = 0; layer < model.config.num_layers; ++layer) {
    for (auto& spec : weights::LayerTensors(model.config, layer)) specs.push_back(std::move(spec));
  }
  for (const weights::TensorSpec& spec : specs) {
    if (spec.dims.size() != 2) {
      views[spec.name] = *model.checkpoint->Get(spec.name);
      continue;
    }
    auto stored = weights::FindMatrix(model.config, *model.checkpoint, spec, spec.index);
    MINISGL_CHECK(stored.ok(), "{}", stored.status().message());
    const WeightTensor& matrix = stored->weights;
    std::vector<float> values(static_cast<size_t>(matrix.num_out() * matrix.num_in()));
    for (int64_t out = 0; out < matrix.num_out(); ++out) {
      matrix.ReadRow(out, values.data() + out * matrix.num_in());
    }
    memory->push_back(std::move(values));
    views[spec.name] = {reinterpret_cast<const std::byte*>(memory->back().data()),
                        DType::kF32,
                        {matrix.num_out(), matrix.num_in()}};
  }
  plain.checkpoint = Checkpoint::FromViews(std::move(views), memory, "expanded");
  return plain;
}

// DoRA divides by the lengths of the expanded weights' rows.
TEST(AdaptedCodesTest, CodesAnswerAsTheWeightsThatTheyStandFor) {
  for (const char* base : {"quant_fp8_block", "quant_fp8_tensor", "quant_gptq_int8",
                           "quant_ct_int8_channel", "quant_awq"}) {
    SCOPED_TRACE(base);
    AdaptedModel model;
    const std::string dir = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + base;
    model.config = *LoadModelConfig(dir);
    model.checkpoint = std::move(Checkpoint::Open(dir)).value();
    for (const bool is_dora : {false, true}) {
      model.adapters.push_back(RandomAdapter(model.config, is_dora));
    }
    std::vector<AdaptedCase> cases;
    for (const AdapterSlot slot : {0, 1, kNoAdapter}) {
      cases.push_back({slot, {5, 9, 30, 2, 7}, std::vector<TokenId>(12)});
    }
    const ScheduledRun codes = RunCases(model, cases, {});
    const ScheduledRun plain = RunCases(Expanded(model), cases, {});
    for (const auto& [id, answer] : codes.answers) {
      const std::vector<RowResult>& other = plain.answers.at(id);
      ASSERT_EQ(answer.size(), other.size());
      for (size_t i = 0; i < answer.size(); ++i) {
        ASSERT_EQ(answer[i].token, other[i].token) << "request " << id << ", token " << i;
        EXPECT_NEAR(answer[i].logprob, other[i].logprob, 1e-3);
      }
    }
    EXPECT_NE(codes.answers.at(1)[0].logprob, codes.answers.at(3)[0].logprob);
    EXPECT_NE(codes.answers.at(1)[0].logprob, codes.answers.at(2)[0].logprob);
  }
}

class AdaptersTest : public testing::TestWithParam<const char*> {};

TEST_P(AdaptersTest, AnswersAreTheReferencesInOneBatch) {
  const AdaptedModel model = LoadAdapted(GetParam());
  const ScheduledRun all = RunCases(model, model.cases, {});
  ExpectAnswers(model, model.cases, all);
  for (const AdapterSetting& setting :
       {AdapterSetting{.page_size = 1, .chunk = 5},
        AdapterSetting{.page_size = 4, .num_pages = 18, .depth = 2},
        AdapterSetting{.chunk = 64, .max_drafts = 3, .num_threads = 2},
        AdapterSetting{.cache = CacheKind::kNaive, .rows = 3}}) {
    ExpectSame(all, RunCases(model, model.cases, setting));
  }
}

// A row's bits depend neither on its neighbours' adapters nor on whether there are any.
TEST_P(AdaptersTest, ARowAloneHasTheSameBits) {
  const AdaptedModel model = LoadAdapted(GetParam());
  const ScheduledRun all = RunCases(model, model.cases, {});
  AdaptedModel plain = LoadAdapted(GetParam());
  plain.adapters.clear();
  for (size_t i = 0; i < model.cases.size(); ++i) {
    const bool is_base = model.cases[i].slot == kNoAdapter;
    const ScheduledRun alone = RunCases(is_base ? plain : model, {model.cases[i]}, {});
    EXPECT_TRUE(SameResults(all.answers.at(i + 1), alone.answers.at(1))) << "request " << i + 1;
  }
}

// The model without adapters drafts: it is right for rows of the model, and often for the others.
TEST(DraftedAdaptersTest, TheModelDraftsForRowsOfAdapters) {
  const AdaptedModel model = LoadAdapted("qwen3");
  const ScheduledRun plain = RunCases(model, model.cases, {.rows = 4});
  ExpectAnswers(model, model.cases, plain);
  for (const AdapterSetting& setting :
       {AdapterSetting{.max_drafts = 3, .rows = 4, .drafts_by_itself = true},
        AdapterSetting{
            .page_size = 1, .chunk = 5, .max_drafts = 2, .rows = 2, .drafts_by_itself = true},
        AdapterSetting{
            .num_ranks = 2, .max_drafts = 3, .depth = 0, .rows = 4, .drafts_by_itself = true}}) {
    const ScheduledRun run = RunCases(model, model.cases, setting);
    ExpectAnswers(model, model.cases, run);
    if (setting.num_ranks == 1) ExpectSame(plain, run);
    EXPECT_GT(run.stats.accepted_drafts, 10);
    EXPECT_LT(run.stats.accepted_drafts, run.stats.drafted_tokens);
  }
}

TEST_P(AdaptersTest, TwoRanksAnswerAsOne) {
  const AdaptedModel model = LoadAdapted(GetParam());
  if (!CheckRanks(model.config, 2).ok()) GTEST_SKIP() << "two ranks do not divide it";
  const ScheduledRun run = RunCases(model, model.cases, {.num_ranks = 2});
  ExpectAnswers(model, model.cases, run);
  ExpectSame(run, RunCases(model, model.cases, {.page_size = 4, .chunk = 7, .num_ranks = 2}));
}

TEST_P(AdaptersTest, MergedWeightsGiveTheSameAnswers) {
  const AdaptedModel model = LoadAdapted(GetParam());
  for (size_t slot = 0; slot < model.adapters.size(); ++slot) {
    auto config = MergedConfig(model.config, *model.adapters[slot]);
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto merged = MergeAdapter(*config, *model.checkpoint, model.adapters[slot]);
    if (model.names[slot] == "lora_bias") {  // attention has biases, and the model's head has none
      if (!merged.ok()) continue;
    }
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    AdaptedModel alone;
    alone.config = merged->config;
    alone.checkpoint = std::move(merged->checkpoint);
    std::vector<AdaptedCase> cases;
    for (const AdaptedCase& one : model.cases) {
      if (one.slot == static_cast<AdapterSlot>(slot)) {
        cases.push_back({kNoAdapter, one.prompt, one.answer});
      }
    }
    SCOPED_TRACE(model.names[slot]);
    ExpectAnswers(alone, cases, RunCases(alone, cases, {}));
  }
}

// Fewer in memory than rows name: the others wait for room.
TEST_P(AdaptersTest, AFewAtATimeGiveTheSameBits) {
  const AdaptedModel model = LoadAdapted(GetParam());
  for (const auto& adapter : model.adapters) {
    for (const AdapterChange& change : adapter->changes) {
      if (change.weight.data != nullptr) GTEST_SKIP() << "whole matrices are loaded at the start";
    }
  }
  const ScheduledRun all = RunCases(model, model.cases, {});
  if (model.adapters.size() < 2) return;
  ExpectSame(all, RunCases(model, model.cases, {.max_adapters = 1}));
  ExpectSame(all, RunCases(model, model.cases, {.page_size = 4, .depth = 0, .max_adapters = 1}));
  if (!CheckRanks(model.config, 2).ok()) return;
  ExpectSame(RunCases(model, model.cases, {.num_ranks = 2}),
             RunCases(model, model.cases, {.num_ranks = 2, .max_adapters = 1}));
}

// No adapter of these lacks a module that its configuration names.
TEST_P(AdaptersTest, NoneLacksAModule) {
  const AdaptedModel model = LoadAdapted(GetParam());
  for (size_t i = 0; i < model.adapters.size(); ++i) {
    if (model.names[i] == "experts") continue;  // made of one that left a dense layer out
    EXPECT_EQ(LackedModules(model.config, *model.adapters[i]), std::vector<std::string>())
        << model.names[i];
  }
}

TEST(LackedModulesTest, AMissingLayerIsNamed) {
  const AdaptedModel model = LoadAdapted("llama_yarn");
  ASSERT_EQ(model.names[0], "plain");
  Adapter cut = *model.adapters[0];
  std::erase_if(cut.changes, [](const AdapterChange& change) {
    return change.module.find("layers.1.self_attn") != std::string::npos;
  });
  EXPECT_EQ(LackedModules(model.config, cut),
            (std::vector<std::string>{"layers.1.self_attn.k_proj", "layers.1.self_attn.o_proj",
                                      "layers.1.self_attn.q_proj", "layers.1.self_attn.v_proj"}));
  cut.targets = {"model.layers.0.self_attn.q_proj", "layers.1.self_attn.k_proj"};
  EXPECT_EQ(LackedModules(model.config, cut),
            std::vector<std::string>{"layers.1.self_attn.k_proj"});
  // Its configuration takes some layers alone.
  cut.targets.clear();
  EXPECT_EQ(LackedModules(model.config, cut), std::vector<std::string>());
}

// Adapters of either kind of file over a base in a GGUF file.
TEST(AdaptedGgufTest, AnswersAreTheReferences) {
  const AdaptedModel model = LoadAdapted("llama_yarn", "llama_yarn.gguf");
  ASSERT_EQ(model.adapters.size(), 4u);
  ExpectAnswers(model, model.cases, RunCases(model, model.cases, {}));
}

INSTANTIATE_TEST_SUITE_P(Bases, AdaptersTest,
                         testing::Values("phi3", "qwen3_moe", "mixtral", "gpt_oss", "llama_biases",
                                         "llama_yarn", "qwen3", "gemma2", "glm4", "deepseek_v2",
                                         "qwen3_next", "lfm2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace minisgl
