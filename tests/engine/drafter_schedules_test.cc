// Answers with drafts by a model beside the target are those without, bit for bit, under every
// schedule. A model that drafts for itself is right each time: a key that the drafter lacks, or
// that a rejected draft left behind, would show.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/scheduled_run.h"
#include "golden_models.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/weights/draft_head.h"
#include "minisgl/weights/prediction_layer.h"
#include "sim/sim_constraint.h"

namespace minisgl {
namespace {

enum class Drafts : uint8_t { kNone, kByItself, kByLayer, kByHead };

struct DraftSetting {
  int32_t page_size = 16;
  int32_t chunk = 64;
  int32_t num_pages = 0;  // 0: enough
  int32_t max_running_requests = 4;
  int32_t num_ranks = 1;
  int32_t max_drafts = 3;
  int depth = 1;
  bool copies_head = false;
  CacheKind cache = CacheKind::kRadix;
  AdmissionPolicy admission = AdmissionPolicy::kReserve;
};

struct DraftedModel {
  std::string dir;
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::string head_dir;  // of kByHead
};

// `folder`: in tests.
DraftedModel OpenDrafted(const std::string& folder) {
  const std::string dir = std::string(MINISGL_SOURCE_DIR) + "/tests/" + folder;
  auto config = LoadModelConfig(dir);
  auto checkpoint = Checkpoint::Open(dir);
  MINISGL_CHECK(config.ok() && checkpoint.ok(), "{}", dir);
  return {dir, std::move(config).value(), std::move(checkpoint).value(), ""};
}

ScheduledRun RunDrafted(const DraftedModel& model, Drafts drafts, const DraftSetting& setting,
                        const std::vector<Request>& requests) {
  ModelList models(model.config);
  if (drafts != Drafts::kNone) {
    ModelConfig drafter = model.config;
    if (drafts == Drafts::kByLayer) {
      drafter = PredictionLayerOf(model.config, *model.checkpoint).value();
      if (setting.copies_head) drafter.copied_head = "lm_head.weight";
    }
    if (drafts == Drafts::kByHead) drafter = LoadDraftHead(model.head_dir, model.config).value();
    const auto listed = MakeDecoderModel(ModelRole::kDrafter, drafter, model.head_dir);
    MINISGL_CHECK(models.Add(listed).ok(), "added");
  }
  const auto files = ModelFiles::Open(models, model.dir);
  MINISGL_CHECK(files.ok(), "{}", files.status().message());
  auto plan = PlanMemory(models,
                         {.num_threads = setting.num_ranks,
                          .num_ranks = setting.num_ranks,
                          .max_running_requests = setting.max_running_requests,
                          .max_prefill_tokens = setting.chunk,
                          .max_step_drafts = 64,
                          .page_size = setting.page_size,
                          .num_pages = setting.num_pages},
                         uint64_t{1} << 32);
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  auto engine = MakeModelEngine(models, *files, *plan, RanksOfF32Activations(setting.num_ranks));
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  // Files of kept prefixes have blocks of this size.
  if (plan->limits.num_window_pages == 0) {
    EXPECT_EQ(static_cast<uint64_t>((*engine)->KvBlockBytes(64)), 64 * plan->kv_bytes_per_token);
  }
  SchedulerOptions options;
  options.max_prefill_tokens = setting.chunk;
  options.cache = setting.cache;
  options.admission = setting.admission;
  options.step = StepPolicy::kMixed;
  if (drafts != Drafts::kNone) options.max_drafts = setting.max_drafts;
  return RunScheduled(engine->get(), options, requests, setting.depth);
}

// Half of them greedy, some with a common beginning, one of a single token.
std::vector<Request> SomeRequests(const ModelConfig& config, int count, int64_t max_tokens,
                                  bool greedy) {
  std::vector<Request> requests;
  const auto vocab_size = static_cast<int32_t>(config.vocab_size);
  const std::vector<TokenId> common = RandomPrompt(33, 1, vocab_size);
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = static_cast<RequestId>(i) + 1;
    request.prompt =
        RandomPrompt(i == 1 ? 1 : 5 + 7 * (i % 5), static_cast<uint64_t>(i) + 2, vocab_size);
    if (i % 3 == 2) request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
    request.max_tokens = max_tokens;
    request.sampling.temperature = greedy || i % 2 == 0 ? 0 : 0.8f;
    request.sampling.seed = static_cast<uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<DraftSetting> Schedules() {
  return {{},
          {.page_size = 1, .chunk = 9, .depth = 0},
          {.page_size = 4, .chunk = 16, .max_drafts = 1},
          {.page_size = 4, .chunk = 64, .cache = CacheKind::kNaive},
          {.num_ranks = 2},
          // Requests are preempted, and go on from what the cache keeps of them.
          {.page_size = 4,
           .chunk = 32,
           .num_pages = 33,
           .max_drafts = 2,
           .admission = AdmissionPolicy::kOptimistic}};
}

TEST(DrafterSchedulesTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  for (const bool greedy : {true, false}) {
    const std::vector<Request> requests = SomeRequests(model.config, 8, 24, greedy);
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
    int64_t preemptions = 0;
    for (const DraftSetting& setting : Schedules()) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 40);
      if (greedy) EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
      preemptions += run.stats.preemptions;
    }
    EXPECT_GT(preemptions, 0);
  }
}

TEST(DrafterSchedulesTest, ALayersDraftsChangeNoAnswer) {
  for (const char* name : {"golden/prediction/glm4_moe", "golden/prediction/deepseek_v3",
                           "golden/prediction/glm4_moe_lite"}) {
    const DraftedModel model = OpenDrafted(name);
    const std::vector<Request> requests = SomeRequests(model.config, 8, 24, /*greedy=*/false);
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
    std::vector<DraftSetting> settings = Schedules();
    settings.push_back({.num_ranks = 2, .copies_head = true});
    for (const DraftSetting& setting : settings) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 10);
    }
  }
}

TEST(DrafterSchedulesTest, AHeadsDraftsChangeNoAnswer) {
  DraftedModel model = OpenDrafted("golden/draft_heads/target");
  const std::vector<Request> requests = SomeRequests(model.config, 8, 24, /*greedy=*/false);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  for (const char* name : {"eagle3", "eagle3_ids", "eagle3_speculators", "dflash", "glimmer"}) {
    model.head_dir = folder + name;
    for (const DraftSetting& setting : Schedules()) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 10) << name;
    }
  }
}

TEST(DrafterSchedulesTest, AnAssistantsDraftsChangeNoAnswer) {
  DraftedModel model = OpenDrafted("golden/assistant/target");
  const std::vector<Request> requests = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  for (const char* name : {"plain", "ordered"}) {
    model.head_dir = folder + name;
    int64_t drafted = 0;
    for (const DraftSetting& setting : Schedules()) {
      if (setting.num_ranks > 1) continue;
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, plain);
      drafted += run.stats.drafted_tokens;
    }
    EXPECT_GT(drafted, 100) << name;
  }
}

// A head that was trained for the demo model is right as often under every schedule: a state or a
// key of another token would make it worse.
TEST(DrafterSchedulesTest, ATrainedHeadIsRightAsOftenUnderEverySchedule) {
  DraftedModel model = OpenDrafted("models/wren");
  model.head_dir = model.dir + "-eagle3";
  auto tokenizer = Tokenizer::Load(model.dir);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::vector<Request> requests;
  for (const char* subject : {"a hen and a coat", "a beaver and a boat", "a pony and a jar"}) {
    const std::string said =
        fmt::format("<s><|user|>\nWrite a short story about {}.</s>\n<|assistant|>\n", subject);
    const TextPiece piece = {said, /*trusted=*/true};
    Request& request = requests.emplace_back();
    request.id = static_cast<RequestId>(requests.size());
    request.prompt = (*tokenizer)->Encode({&piece, 1}).value();
    request.max_tokens = 60;
    request.stop_ids = {2};
    request.sampling.temperature = 0;
  }
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
  int64_t drafted = 0, accepted = 0;
  for (const DraftSetting& setting :
       std::vector<DraftSetting>{{},
                                 {.page_size = 1, .chunk = 24, .depth = 0},
                                 {.page_size = 4, .chunk = 32, .cache = CacheKind::kNaive},
                                 {.num_ranks = 2}}) {
    const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
    ExpectSame(run, plain);
    if (drafted == 0) drafted = run.stats.drafted_tokens, accepted = run.stats.accepted_drafts;
    EXPECT_EQ(run.stats.drafted_tokens, drafted);
    EXPECT_EQ(run.stats.accepted_drafts, accepted);
  }
  EXPECT_GT(2 * accepted, drafted) << drafted;
}

// Most rows have a constraint: the drafts are guided by it.
TEST(DrafterSchedulesTest, DraftsOfConstrainedRowsKeepToTheConstraint) {
  const auto requests_of = [](const ModelConfig& config, bool greedy) {
    std::vector<Request> requests = SomeRequests(config, 8, 30, greedy);
    for (size_t i = 0; i + 1 < requests.size(); ++i) {
      requests[i].stop_ids = {0};
      requests[i].constraint = std::make_shared<sim::SimConstraint>(
          sim::SimGrammar{.seed = i * 1000, .vocab_size = config.vocab_size, .has_end = true});
    }
    return requests;
  };
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  DraftedModel headed = OpenDrafted("golden/draft_heads/target");
  headed.head_dir = headed.dir.substr(0, headed.dir.rfind('/') + 1) + "eagle3";
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = blocks.dir.substr(0, blocks.dir.rfind('/') + 1) + "dflash";
  const std::pair<const DraftedModel*, Drafts> pairs[] = {
      {&model, Drafts::kByItself}, {&headed, Drafts::kByHead}, {&blocks, Drafts::kByHead}};
  for (const auto& [pair, drafts] : pairs) {
    for (const bool greedy : {true, false}) {
      const ScheduledRun plain =
          RunDrafted(*pair, Drafts::kNone, {}, requests_of(pair->config, greedy));
      for (const DraftSetting& setting : Schedules()) {
        const ScheduledRun run =
            RunDrafted(*pair, drafts, setting, requests_of(pair->config, greedy));
        ExpectSame(run, plain);
        EXPECT_GT(run.stats.drafted_tokens, 20);
        // Without the guide most drafts of a model that drafts for itself would be refused.
        if (greedy && drafts == Drafts::kByItself) {
          EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
        }
      }
    }
  }
}

// With many rows the drafter is left out, and rows that it has not read have no drafts later.
TEST(DrafterSchedulesTest, ManyRowsLeaveTheDrafterOut) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  std::vector<Request> requests = SomeRequests(model.config, kDraftRowsMax + 8, 12, true);
  for (size_t i = 0; i < 4; ++i) requests[i].max_tokens = 60;
  const DraftSetting setting = {.chunk = 256, .max_running_requests = kDraftRowsMax + 8};
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
  const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, requests);
  ExpectSame(run, plain);
  EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
}

}  // namespace
}  // namespace minisgl
