// Drafts by a model beside a target whose rows have pictures: a layer reads what the target reads,
// at the positions of the target, and answers are those without drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_run.h"
#include "engine/engine_driver.h"
#include "engine/made_up_tower.h"
#include "engine/token_drafter.h"

namespace minisgl {
namespace {

constexpr int32_t kPicture = 10, kFirst = 4;  // tokens of the picture, and its place

std::shared_ptr<const ListedModel> TowerOf(const ModelConfig& config, int64_t* num_pieces) {
  return std::make_shared<MadeUpTowerModel>(config, 0, num_pieces);
}

// Texts of 30 and more ids, whose tokens from kFirst on are a picture of the same ids.
std::vector<Request> WithPictures(std::vector<Request> requests) {
  for (Request& request : requests) {
    if (std::ssize(request.prompt) < kFirst + kPicture + 1) continue;
    auto picture = std::make_shared<MadeUpPicture>();
    picture->ids.assign(request.prompt.begin() + kFirst,
                        request.prompt.begin() + kFirst + kPicture);
    picture->count = kPicture;
    uint64_t sum = 1;
    for (const TokenId id : picture->ids) sum = sum * 1000003 + static_cast<uint64_t>(id);
    const ContentHash hash = {sum, kPicture};
    auto extras = std::make_shared<RowExtras>();
    extras->embeddings.push_back({kFirst, kPicture, 0, 0});
    extras->inputs.push_back({.token = kFirst,
                              .length = kPicture,
                              .num_embeddings = kPicture,
                              .hash = hash,
                              .content = picture});
    request.marks.push_back({kFirst, hash});
    request.extras = extras;
    std::fill_n(request.prompt.begin() + kFirst, kPicture, 5);
  }
  return requests;
}

// A picture of ids is a text of those ids for the target. The layer's drafts are as right beside it
// under every schedule, as it reads the same embeddings.
TEST(PictureDraftsTest, ALayerReadsPicturesAsTheTargetDoes) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> texts = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  const std::vector<Request> rows = WithPictures(texts);
  int64_t num_pieces = 0;
  DraftSetting alone = {.max_running_requests = 1, .depth = 0, .cache = CacheKind::kNaive};
  const ScheduledRun of_texts = RunDrafted(model, Drafts::kByLayer, alone, texts);
  alone.tower = TowerOf(model.config, &num_pieces);
  const ScheduledRun of_rows = RunDrafted(model, Drafts::kByLayer, alone, rows);
  ExpectSame(of_rows, of_texts);
  EXPECT_GT(num_pieces, 0);
  EXPECT_EQ(of_rows.stats.drafted_tokens, of_texts.stats.drafted_tokens);
  EXPECT_EQ(of_rows.stats.accepted_drafts, of_texts.stats.accepted_drafts);
  for (DraftSetting setting : Schedules()) {
    setting.tower = alone.tower;
    const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, rows);
    ExpectSame(run, of_texts);
    EXPECT_GT(run.stats.drafted_tokens, 10);
  }
}

// A small model that is the target sees the ids of a picture, and not the picture.
TEST(PictureDraftsTest, ASmallModelDraftsBesidePictures) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> rows =
      WithPictures(SomeRequests(model.config, 6, 30, /*greedy=*/true));
  int64_t num_pieces = 0;
  DraftSetting setting = {.tower = TowerOf(model.config, &num_pieces)};
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, rows);
  const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, rows);
  ExpectSame(run, plain);
  EXPECT_GT(run.stats.drafted_tokens, 10);
}

// What the passes of a layer are given.
struct SeenPass {
  std::vector<TokenId> ids;
  std::vector<RopePosition> positions;
  std::vector<PlacedEmbeddings> placed;
};

class LayerPassTest : public testing::Test {
 protected:
  static constexpr int32_t kWidth = 4, kVocab = 8;

  void SetUp() override {
    ModelConfig config;
    config.prediction = PredictionLayer::kApart;
    config.hidden_size = kWidth;
    config.vocab_size = kVocab;
    config.ropes.emplace_back();
    config.ropes[0].sections = {1, 1, 1};
    limits_.vocab_size = kVocab;
    limits_.page_size = 4;
    limits_.num_pages = 4;
    limits_.max_step_tokens = 16;
    engine::TokenDrafter::Passes passes;
    passes.run_layers = [this](const ForwardInput& input) { See(input); };
    passes.logits = [this](const ForwardInput&) { return logits_.data(); };
    passes.states = [this](const ForwardInput&) { return ConstActivationPtr(state_.data()); };
    auto ops = MakeCpuOps({.num_threads = 1});
    ASSERT_TRUE(ops.ok());
    ops_ = std::move(ops).value();
    auto drafter = engine::TokenDrafter::Make(limits_, config, std::move(passes), ops_.get());
    ASSERT_TRUE(drafter.ok());
    drafter_ = std::move(drafter).value();
    tables_ = {.page_table = pages_.data(),
               .page_table_stride = 4,
               .token_pool = pool_.data(),
               .token_pool_stride = 16};
    logits_[6] = 1;
  }
  void See(const ForwardInput& input) {
    SeenPass pass;
    pass.ids.assign(input.token_ids, input.token_ids + input.num_tokens);
    if (input.rope_positions != nullptr) {
      pass.positions.assign(input.rope_positions, input.rope_positions + input.num_tokens);
    }
    pass.placed.assign(input.placed.begin(), input.placed.end());
    seen_.push_back(std::move(pass));
  }
  // Tokens [begin, end) of the row, the last `num_drafts` of them drafts that the drafter makes.
  static BatchPlan PlanOf(int32_t begin, int32_t end, int32_t num_drafts) {
    BatchPlan plan;
    plan.table_row = {0};
    plan.row_begin = {0, end - begin};
    plan.kv_len = {end};
    plan.num_drafts = {num_drafts};
    plan.wants_token = {1};
    if (num_drafts > 0) plan.makes_drafts = {1};
    for (int32_t place = begin; place < end; ++place) {
      plan.positions.push_back(place);
      plan.slots.push_back(place);
    }
    plan.extras.hidden.push_back({0, end - begin});
    return plan;
  }

  EngineLimits limits_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<engine::TokenDrafter> drafter_;
  std::vector<int32_t> pages_ = {0, 1, 2, 3};
  std::vector<TokenId> pool_ = {1, 5, 5, 5, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  engine::StepTables tables_;
  std::vector<float> logits_ = std::vector<float>(size_t{kVocab} * 2);
  std::vector<float> state_ = std::vector<float>(size_t{kWidth} * 2);
  std::vector<SeenPass> seen_;
};

// A prompt of six tokens with a picture at [1, 4), of which a step computes the last five: the
// layer's rows have the picture's embeddings and the given positions, less one.
TEST_F(LayerPassTest, RowsOfAPromptHaveThePicturesEmbeddingsAndPositions) {
  const std::vector<float> states(size_t{kWidth} * 8), embeddings(size_t{kWidth} * 3);
  drafter_->TakeStates(states.data(), 0, 1);
  const int32_t none = 0;
  drafter_->Feed(PlanOf(0, 1, 0), tables_, &none, {});
  EXPECT_TRUE(seen_.empty()) << "the first token has no row";
  BatchPlan plan = PlanOf(1, 6, 0);
  plan.extras.rope_positions = {{1, 1, 1}, {1, 1, 2}, {1, 2, 1}, {3, 3, 3}, {4, 4, 4}};
  plan.extras.positions.push_back({0, 5, 0});
  drafter_->TakeStates(states.data(), 0, 5);
  drafter_->Feed(plan, tables_, &none,
                 std::vector<PlacedEmbeddings>{{0, 3, embeddings.data(), kWidth}});
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_EQ(seen_[0].ids, (std::vector<TokenId>{5, 5, 5, 2, 3}));
  EXPECT_EQ(seen_[0].positions,
            (std::vector<RopePosition>{{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {2, 2, 2}, {3, 3, 3}}));
  ASSERT_EQ(seen_[0].placed.size(), 1u);
  EXPECT_EQ(seen_[0].placed[0].token, 0);
  EXPECT_EQ(seen_[0].placed[0].count, 3);
  EXPECT_EQ(seen_[0].placed[0].embeddings, embeddings.data());
}

// A picture that begins with the prompt: its first token has no row.
TEST_F(LayerPassTest, APictureAtTheBeginHasOneRowLess) {
  const std::vector<float> states(size_t{kWidth} * 8), embeddings(size_t{kWidth} * 3);
  drafter_->TakeStates(states.data(), 0, 4);
  const int32_t none = 0;
  drafter_->Feed(PlanOf(0, 4, 0), tables_, &none,
                 std::vector<PlacedEmbeddings>{{0, 3, embeddings.data(), kWidth}});
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_EQ(seen_[0].ids.size(), 3u);
  ASSERT_EQ(seen_[0].placed.size(), 1u);
  EXPECT_EQ(seen_[0].placed[0].token, 0);
  EXPECT_EQ(seen_[0].placed[0].count, 2);
  EXPECT_EQ(seen_[0].placed[0].embeddings, embeddings.data() + kWidth);
}

// Embeddings with parts for further layers (deepstack) are none of a layer's.
TEST_F(LayerPassTest, EmbeddingsOfAnotherWidthAreNotRead) {
  const std::vector<float> states(size_t{kWidth} * 8), embeddings(size_t{kWidth} * 6);
  drafter_->TakeStates(states.data(), 0, 4);
  const int32_t none = 0;
  drafter_->Feed(PlanOf(0, 4, 0), tables_, &none,
                 std::vector<PlacedEmbeddings>{{0, 3, embeddings.data(), 2 * kWidth}});
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_TRUE(seen_[0].placed.empty());
}

// Drafts go on from the position of the last known token.
TEST_F(LayerPassTest, DraftsGoOnFromTheGivenPosition) {
  const std::vector<float> states(size_t{kWidth} * 8);
  drafter_->TakeStates(states.data(), 0, 6);
  const int32_t none = 0;
  drafter_->Feed(PlanOf(0, 6, 0), tables_, &none, {});
  seen_.clear();
  BatchPlan plan = PlanOf(6, 9, 2);
  plan.extras.rope_positions = {{4, 4, 4}, {5, 5, 5}, {6, 6, 6}};
  plan.extras.positions.push_back({0, 3, 0});
  drafter_->Propose(plan, tables_, nullptr);
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[0].ids, std::vector<TokenId>{4});
  EXPECT_EQ(seen_[0].positions, (std::vector<RopePosition>{{3, 3, 3}}));
  EXPECT_EQ(seen_[1].ids, std::vector<TokenId>{6});
  EXPECT_EQ(seen_[1].positions, (std::vector<RopePosition>{{4, 4, 4}}));
}

}  // namespace
}  // namespace minisgl
