// Drafts by a model beside a target whose rows have pictures: a layer reads what the target reads,
// at the positions of the target, and answers are those without drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_pictures.h"
#include "engine/drafted_run.h"
#include "engine/engine_driver.h"
#include "engine/host_device_ops.h"
#include "engine/token_drafter.h"

namespace minisgl {
namespace {

// A picture of ids is a text of those ids for the target. The layer's drafts are as right beside it
// under every schedule, as it reads the same embeddings.
TEST(PictureDraftsTest, ALayerReadsPicturesAsTheTargetDoes) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> texts = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  const std::vector<Request> rows = WithPictures(texts);
  int64_t num_pieces = 0;
  DraftSetting alone = {.max_running_requests = 1, .depth = 0, .cache = CacheKind::kNaive};
  const ScheduledRun of_texts = RunDrafted(model, Drafts::kByLayer, alone, texts);
  alone.tower = DraftedTower(model.config, &num_pieces);
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
  DraftSetting setting = {.tower = DraftedTower(model.config, &num_pieces)};
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, rows);
  const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, rows);
  ExpectSame(run, plain);
  EXPECT_GT(run.stats.drafted_tokens, 10);
}

std::vector<std::unique_ptr<DeviceOps>> OneHostDevice(int32_t num_ranks) {
  MINISGL_CHECK(num_ranks == 1, "{} host devices", num_ranks);
  std::vector<std::unique_ptr<DeviceOps>> devices;
  devices.push_back(MakeHostDeviceOps());
  return devices;
}

// Runs `rows` on the CPU and on a device, under each schedule, with graphs and without: the answers
// are those of `plain`, and as many drafts are right on both.
void ExpectDraftsAsOnTheCpu(const DraftedModel& model, Drafts drafts,
                            const std::shared_ptr<const ListedModel>& tower,
                            const std::vector<Request>& rows, const ScheduledRun& plain) {
  int32_t graph_max_tokens = 0;
  for (DraftSetting setting : Schedules()) {
    if (setting.num_ranks > 1) continue;
    setting.tower = tower;
    const ScheduledRun on_cpu = RunDrafted(model, drafts, setting, rows);
    setting.devices = OneHostDevice;
    setting.graph_max_tokens = graph_max_tokens;
    graph_max_tokens = 32 - graph_max_tokens;
    const ScheduledRun run = RunDrafted(model, drafts, setting, rows);
    ExpectSame(run, plain);
    EXPECT_GT(run.stats.drafted_tokens, 10);
    EXPECT_EQ(run.stats.drafted_tokens, on_cpu.stats.drafted_tokens) << setting.chunk;
    EXPECT_EQ(run.stats.accepted_drafts, on_cpu.stats.accepted_drafts) << setting.chunk;
  }
}

TEST(PictureDraftsTest, DevicesDraftBesidePicturesAsTheCpu) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> texts = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  const std::vector<Request> rows = WithPictures(texts);
  int64_t num_pieces = 0;
  const auto tower = DraftedTower(model.config, &num_pieces);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {.tower = tower}, rows);
  for (const Drafts drafts : {Drafts::kByLayer, Drafts::kByItself}) {
    ExpectDraftsAsOnTheCpu(model, drafts, tower, rows, plain);
  }
  // A picture of ids is a text of those ids for a layer, too.
  DraftSetting alone = {.max_running_requests = 1,
                        .depth = 0,
                        .cache = CacheKind::kNaive,
                        .devices = OneHostDevice,
                        .graph_max_tokens = 64};
  const ScheduledRun of_texts = RunDrafted(model, Drafts::kByLayer, alone, texts);
  alone.tower = tower;
  const ScheduledRun of_rows = RunDrafted(model, Drafts::kByLayer, alone, rows);
  EXPECT_EQ(of_rows.stats.accepted_drafts, of_texts.stats.accepted_drafts);
}

// Gives the tokens of pictures positions of three parts, as far from places as can be.
std::vector<Request> WithPositions(std::vector<Request> requests) {
  for (Request& request : requests) {
    if (request.extras == nullptr) continue;
    auto extras = std::make_shared<RowExtras>(*request.extras);
    for (int32_t place = 0; place < std::ssize(request.prompt); ++place) {
      const int32_t in_picture = std::clamp(place - kDraftedFirst, 0, kDraftedPicture - 1);
      const int32_t base = place - in_picture;
      extras->positions.of_prompt.push_back(
          {base, base + 9 * (in_picture / 5), base + 7 * (in_picture % 5)});
    }
    extras->positions.shift = 1 - kDraftedPicture;
    request.extras = extras;
  }
  return requests;
}

// Keys and values of the target and of the layer, page by page, after `request` has run alone.
std::vector<std::vector<float>> PagesAfter(const DraftedModel& model, const DraftSetting& setting,
                                           const Request& request) {
  const auto engine = MakeDraftedEngine(model, Drafts::kByLayer, setting);
  const ScheduledRun run = RunDrafted(engine.get(), Drafts::kByLayer, setting, {request});
  EXPECT_GT(run.stats.drafted_tokens, 5);
  std::vector<std::vector<float>> pages;
  for (PageId page = 0; page < engine->limits().num_pages; ++page) {
    const auto copy = engine->ReadPages({&page, 1});
    while (!copy->IsReady()) continue;
    const int64_t num_bytes = engine->KvBlockBytes(setting.page_size);
    pages.emplace_back(static_cast<size_t>(num_bytes) / sizeof(float));
    EXPECT_TRUE(copy->TakeBlock(std::as_writable_bytes(std::span(pages.back()))).ok());
  }
  return pages;
}

// A layer of a model that turns by positions of three parts writes the keys that it writes on the
// CPU, of the prompt as it reads it and of the answer as it drafts.
TEST(PictureDraftsTest, DevicesTurnByGivenPositionsAsTheCpu) {
  DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  for (RopeConfig& rope : model.config.ropes) rope.sections = {1, 1, 0};
  const std::vector<Request> rows =
      WithPositions(WithPictures(SomeRequests(model.config, 8, 40, /*greedy=*/false)));
  int64_t num_pieces = 0;
  const auto tower = DraftedTower(model.config, &num_pieces);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {.tower = tower}, rows);
  ExpectDraftsAsOnTheCpu(model, Drafts::kByLayer, tower, rows, plain);

  const Request& row = rows[2];
  ASSERT_NE(row.extras, nullptr);
  for (const auto& [chunk, graph_max_tokens] : {std::pair(64, 0), {64, 64}, {9, 0}, {9, 64}}) {
    DraftSetting setting = {.page_size = 4, .chunk = chunk, .num_pages = 32, .tower = tower};
    const auto on_cpu = PagesAfter(model, setting, row);
    setting.devices = OneHostDevice;
    setting.graph_max_tokens = graph_max_tokens;
    const auto pages = PagesAfter(model, setting, row);
    // The last page has keys of drafts that were not right.
    const int64_t num_full = (std::ssize(row.prompt) + row.max_tokens - 1) / setting.page_size;
    int64_t num_same = 0;
    for (size_t i = 0; i < pages.size(); ++i) {
      float difference = 0, most = 0;
      for (size_t at = 0; at < pages[i].size(); ++at) {
        difference = std::max(difference, std::abs(pages[i][at] - on_cpu[i][at]));
        most = std::max(most, std::abs(on_cpu[i][at]));
      }
      num_same += most > 0 && difference < 1e-4f ? 1 : 0;
    }
    EXPECT_GE(num_same, num_full) << "chunks of " << chunk;
  }
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
