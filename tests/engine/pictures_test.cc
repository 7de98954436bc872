// Prompts with pictures, on models whose text treats them differently: every schedule gives the
// same bits, and embeddings that are those of token ids give the answers of those ids. The pictures
// are those of a made-up tower.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/encoded_inputs.h"
#include "engine/engine_driver.h"
#include "engine/fake_models.h"
#include "engine/made_up_tower.h"
#include "engine/scheduled_run.h"
#include "golden_models.h"
#include "minisgl/model/tower.h"
#include "minisgl/tensor/tensor_view.h"
#include "ops/op_check.h"

namespace minisgl {
namespace {

struct PictureCase {
  const char* golden;
  PictureAttention attention = PictureAttention::kCausal;
  int32_t num_deepstack = 0;
};

void PrintTo(const PictureCase& c, std::ostream* out) { *out << c.golden; }

struct PictureSettings {
  int32_t page_size = 16;
  int32_t num_pages = 200;
  int32_t max_prefill_tokens = 256;
  int64_t encoder_budget = 4096, encoder_cache = 16384;
  int num_threads = 1;
  int32_t num_ranks = 1;
  int depth = 1;
  bool drafts = false;
  CacheKind cache = CacheKind::kRadix;
};

class PicturesTest : public testing::TestWithParam<PictureCase> {
 protected:
  void SetUp() override {
    OpenedGolden golden = OpenGolden(GetParam().golden);
    ASSERT_NE(golden.checkpoint, nullptr);
    config_ = std::move(golden.config);
    config_.picture_attention = GetParam().attention;
    for (RopeConfig& rope : config_.ropes) has_sections_ |= rope.has_sections();
    checkpoint_ = std::move(golden.checkpoint);
  }

  ModelList Models() {
    ModelList models(config_);
    const Status added = models.Add(
        std::make_shared<MadeUpTowerModel>(config_, GetParam().num_deepstack, &num_pieces_));
    EXPECT_TRUE(added.ok()) << added.message();
    return models;
  }

  ScheduledRun Run(const PictureSettings& settings, const std::vector<Request>& requests) {
    const ModelList models = Models();
    ModelEngineOptions options;
    options.num_threads = settings.num_threads;
    options.num_ranks = settings.num_ranks;
    options.max_running_requests = 4;
    options.max_prefill_tokens = settings.max_prefill_tokens;
    options.page_size = settings.page_size;
    options.num_pages = settings.num_pages;
    options.max_step_drafts = settings.drafts ? 32 : 0;
    options.memory_ratio = 0.5;
    options.weight_dtype = DType::kF32;
    options.max_seq_len = 160;
    auto plan = PlanMemory(models, options, uint64_t{4} << 30);
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeModelEngine(models, *checkpoint_, *plan, RanksOf(settings));
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    SchedulerOptions policy;
    policy.max_prefill_tokens = settings.max_prefill_tokens;
    policy.encoder_budget = settings.encoder_budget;
    policy.encoder_cache = settings.encoder_cache;
    policy.admission = AdmissionPolicy::kOptimistic;
    policy.cache = settings.cache;
    if (settings.drafts) {
      policy.drafter = MakeNgramDrafter();
      policy.max_drafts = 4;
    }
    return RunScheduled(engine->get(), policy, requests, settings.depth);
  }

  // A prompt of random ids whose tokens [token, token + count) are those of each picture.
  Request MakeRequest(RequestId id, int32_t length,
                      std::vector<std::pair<int32_t, std::shared_ptr<MadeUpPicture>>> pictures) {
    Request request;
    request.id = id;
    request.prompt = RandomPrompt(length, 7, static_cast<int32_t>(config_.vocab_size));
    request.sampling.temperature = 0;
    request.sampling.num_logprobs = 5;
    request.max_tokens = 10;
    auto extras = std::make_shared<RowExtras>();
    for (const auto& [token, picture] : pictures) {
      const ContentHash hash = {picture->seed + 1, static_cast<uint64_t>(picture->count)};
      request.marks.push_back({token, hash});
      extras->embeddings.push_back({token, picture->count, 0, extras->inputs.size()});
      extras->inputs.push_back(
          {.token = token,
           .length = picture->count,
           .num_embeddings = picture->count,
           .hash = hash,
           .attends_both_ways = GetParam().attention != PictureAttention::kCausal,
           .content = picture});
      std::fill_n(request.prompt.begin() + token, picture->count, 5);
    }
    request.extras = extras;
    return request;
  }

  // Positions of pictures as of grids of three columns.
  static void SetPositions(Request* request) {
    auto extras = std::make_shared<RowExtras>(*request->extras);
    GivenPositions& positions = extras->positions;
    int32_t next = 0;
    for (int32_t token = 0; token < std::ssize(request->prompt); ++token) {
      const auto input = std::find_if(extras->inputs.begin(), extras->inputs.end(),
                                      [&](const EncoderInput& its) { return its.token == token; });
      if (input == extras->inputs.end()) {
        positions.of_prompt.push_back({next, next, next});
        ++next;
        continue;
      }
      const auto rows = static_cast<int32_t>((input->length + 2) / 3);
      for (int32_t i = 0; i < input->length; ++i) {
        positions.of_prompt.push_back({next, next + i / 3, next + i % 3});
      }
      next += std::max(rows, 3);
      token += static_cast<int32_t>(input->length) - 1;
    }
    positions.shift = next - static_cast<int32_t>(request->prompt.size());
    request->extras = extras;
  }

  static std::shared_ptr<MadeUpPicture> Random(uint64_t seed, int32_t count) {
    auto picture = std::make_shared<MadeUpPicture>();
    picture->seed = seed;
    picture->count = count;
    return picture;
  }

  // Two share a picture, one has two, one has none, one ends in a picture's last tokens.
  std::vector<Request> Requests() {
    std::vector<Request> requests = {
        MakeRequest(1, 60, {{4, Random(1, 20)}}),
        MakeRequest(2, 75, {{4, Random(1, 20)}, {40, Random(2, 9)}}),
        MakeRequest(3, 60, {{4, Random(3, 20)}}),
        MakeRequest(4, 33, {}),
        MakeRequest(5, 48, {{1, Random(4, 30)}, {31, Random(2, 9)}}),
        MakeRequest(6, 60, {{4, Random(1, 20)}}),
    };
    if (has_sections_) {
      for (Request& request : requests) {
        if (!request.extras->inputs.empty()) SetPositions(&request);
      }
    }
    return requests;
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  bool has_sections_ = false;
  int64_t num_pieces_ = 0;

 private:
  static EngineRanks RanksOf(const PictureSettings& settings) {
    EngineRanks ranks;
    if (settings.num_ranks > 1) {
      ranks.rendezvous = std::make_shared<Rendezvous>(settings.num_ranks, false);
    }
    for (int32_t index = 0; index < settings.num_ranks; ++index) {
      CpuOpsConfig config;
      config.num_threads = settings.num_threads;
      config.target = TestedCpuTarget();
      config.rank = {index, ranks.rendezvous};
      auto ops = MakeCpuOps(config);
      MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
      ranks.ops.push_back(std::move(ops).value());
    }
    return ranks;
  }
};

TEST_P(PicturesTest, EveryScheduleGivesTheSameBits) {
  const std::vector<Request> requests = Requests();
  const ScheduledRun expected = Run({.cache = CacheKind::kNaive}, requests);
  EXPECT_EQ(expected.stats.encoded_inputs, 4) << "five of them are found in the encoder's cache";
  const auto same = [&](const PictureSettings& settings) {
    SCOPED_TRACE(testing::Message()
                 << "pages of " << settings.page_size << ", " << settings.num_pages
                 << " of them, steps of " << settings.max_prefill_tokens);
    num_pieces_ = 0;
    const ScheduledRun run = Run(settings, requests);
    ExpectSame(run, expected);
    return run.stats;
  };
  same({});
  EXPECT_EQ(num_pieces_, 4);
  same({.page_size = 1, .num_pages = 600, .max_prefill_tokens = 32, .num_threads = 2});
  same({.page_size = 4, .max_prefill_tokens = 31, .encoder_budget = 1, .encoder_cache = 1});
  EXPECT_GE(num_pieces_, 20 + 9 + 20 + 30) << "an embedding each";
  same({.max_prefill_tokens = 40, .encoder_budget = 20, .encoder_cache = 30, .depth = 0});
  same({.page_size = 4, .max_prefill_tokens = 64, .drafts = true});
  const SchedulerStats short_of_pages =
      same({.page_size = 4, .num_pages = 44, .max_prefill_tokens = 64});
  EXPECT_GT(short_of_pages.preemptions, 0);
}

TEST_P(PicturesTest, RanksGiveTheSameTokens) {
  if (config_.num_kv_heads % 2 != 0) GTEST_SKIP() << "an odd number of heads";
  const std::vector<Request> requests = Requests();
  const ScheduledRun one = Run({}, requests), two = Run({.num_ranks = 2}, requests);
  for (const auto& [id, results] : one.answers) {
    ASSERT_EQ(two.answers.at(id).size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(two.answers.at(id)[i].token, results[i].token) << id << " " << i;
    }
  }
}

// The answers depend on the picture, and not only on the ids.
TEST_P(PicturesTest, OtherPicturesGiveOtherAnswers) {
  const std::vector<Request> requests = Requests();
  const ScheduledRun run = Run({}, requests);
  EXPECT_FALSE(SameResults(run.answers.at(1), run.answers.at(3)));
  EXPECT_TRUE(SameResults(run.answers.at(1), run.answers.at(6)));
}

// A picture of the embeddings of ids is a text of those ids, if tokens see no later ones.
TEST_P(PicturesTest, EmbeddingsOfIdsAreTheirText) {
  if (GetParam().attention != PictureAttention::kCausal || config_.per_layer_width > 0) {
    GTEST_SKIP() << "pictures of this model are no text";
  }
  auto picture = std::make_shared<MadeUpPicture>();
  picture->ids = RandomPrompt(20, 11, static_cast<int32_t>(config_.vocab_size));
  picture->count = 20;
  Request with_picture = MakeRequest(1, 60, {{4, picture}});
  Request text = with_picture;
  std::copy(picture->ids.begin(), picture->ids.end(), text.prompt.begin() + 4);
  text.marks.clear();
  text.extras = nullptr;
  const ScheduledRun expected = Run({.max_prefill_tokens = 13}, {text});
  for (const int32_t chunk : {256, 11}) {
    ExpectSame(Run({.max_prefill_tokens = chunk}, {with_picture}), expected);
  }
  if (!has_sections_) return;
  // Positions of three equal parts are positions.
  auto extras = std::make_shared<RowExtras>(*with_picture.extras);
  for (int32_t place = 0; place < 60; ++place) {
    extras->positions.of_prompt.push_back({place, place, place});
  }
  with_picture.extras = extras;
  ExpectSame(Run({}, {with_picture}), expected);
}

// A step that cannot encode a picture, or lacks one, fails by itself; the next one goes on.
TEST(EncodedInputsTest, AFaultIsTheResultOfItsStep) {
  class FailingOnce final : public Tower {
   public:
    uint64_t weight_bytes() const override { return 0; }
    uint64_t workspace_bytes() const override { return 0; }
    int64_t embedding_width() const override { return 2; }
    Result<std::unique_ptr<TowerEncoding>> Begin(const EncoderContent&, float* out) override {
      if (!std::exchange(has_failed_, true)) {
        return Status(StatusCode::kOutOfMemory, "no memory for a picture");
      }
      const std::vector<float> values(6, 1.5f);
      return std::unique_ptr<TowerEncoding>(
          std::make_unique<MadeUpEncoding>(values, 2, out, &num_pieces));
    }
    int64_t num_pieces = 0;

   private:
    bool has_failed_ = false;
  } tower;
  const auto ops = MakeNaiveOps();
  engine::EncodedInputs inputs(&tower, ops.get());
  PlanExtras extras;
  extras.encoded.push_back(
      {.source = 7, .num_embeddings = 3, .content = std::make_shared<MadeUpPicture>(), .end = 3});
  extras.embeddings.push_back({.token = 4, .count = 2, .first = 1, .source = 7});
  std::vector<PlacedEmbeddings> placed;
  EXPECT_EQ(inputs.Apply(extras).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(inputs.Place(extras, &placed).code(), StatusCode::kInternal);
  ASSERT_TRUE(inputs.Apply(extras).ok());
  ASSERT_TRUE(inputs.Place(extras, &placed).ok());
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].token, 4);
  EXPECT_EQ(placed[0].count, 2);
  EXPECT_EQ(placed[0].width, 2);
  EXPECT_EQ(placed[0].embeddings[3], 1.5f);
  PlanExtras later;
  later.embeddings = extras.embeddings;
  later.dropped = {7, 8};
  EXPECT_TRUE(inputs.Apply(later).ok());
  EXPECT_EQ(inputs.Place(later, &placed).code(), StatusCode::kInternal);
}

// A picture is read after its last piece; one that is dropped, or whose place another takes, is not
// gone on with.
TEST(EncodedInputsTest, APictureInPiecesIsReadAfterTheLast) {
  int64_t num_pieces = 0;
  MadeUpTower tower({}, 2, 0, 1, &num_pieces);
  const auto ops = MakeNaiveOps();
  engine::EncodedInputs inputs(&tower, ops.get());
  const auto picture = std::make_shared<MadeUpPicture>();
  picture->count = 5;
  const auto piece = [&](EmbeddingSource source, int64_t begin, int64_t end) {
    PlanExtras extras;
    extras.encoded.push_back({source, 5, {}, picture, begin, end});
    return inputs.Apply(extras);
  };
  const auto is_known = [&inputs](EmbeddingSource source) {
    PlanExtras extras;
    extras.embeddings.push_back({.token = 0, .count = 5, .first = 0, .source = source});
    std::vector<PlacedEmbeddings> placed;
    return inputs.Place(extras, &placed).ok();
  };
  ASSERT_TRUE(piece(1, 0, 2).ok());
  ASSERT_TRUE(piece(1, 2, 4).ok());
  EXPECT_FALSE(is_known(1));
  ASSERT_TRUE(piece(1, 4, 5).ok());
  EXPECT_TRUE(is_known(1));
  EXPECT_EQ(num_pieces, 3);
  ASSERT_TRUE(piece(2, 0, 2).ok());
  PlanExtras drops;
  drops.dropped = {2};
  ASSERT_TRUE(inputs.Apply(drops).ok());
  ASSERT_TRUE(piece(2, 2, 5).ok());
  EXPECT_FALSE(is_known(2));
  ASSERT_TRUE(piece(3, 0, 2).ok());
  ASSERT_TRUE(piece(4, 0, 5).ok());
  ASSERT_TRUE(piece(3, 2, 5).ok());
  EXPECT_FALSE(is_known(3));
  EXPECT_TRUE(is_known(4));
}

INSTANTIATE_TEST_SUITE_P(All, PicturesTest,
                         testing::Values(PictureCase{"llava"}, PictureCase{"qwen2_vl"},
                                         PictureCase{"qwen3_vl", PictureAttention::kCausal, 2},
                                         PictureCase{"qwen3_5"},
                                         PictureCase{"gemma3", PictureAttention::kAllLayers},
                                         PictureCase{"gemma4", PictureAttention::kWindowLayers}),
                         [](const auto& test) { return std::string(test.param.golden); });

}  // namespace
}  // namespace minisgl
