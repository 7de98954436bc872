// Drafts by a model beside the target. What a layer for multi-token prediction proposes is what its
// reference proposes, token by token, whatever the steps and pages; and a model that drafts for
// itself is always right, under every schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/model_state.h"
#include "engine/scheduled_run.h"
#include "engine/token_drafter.h"
#include "golden_models.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/json.h"
#include "minisgl/weights/draft_head.h"
#include "minisgl/weights/prediction_layer.h"

namespace minisgl::engine {
namespace {

constexpr int32_t kStepTokens = 64, kLength = 256, kProposals = 3;

// A text, and what the reference proposes after each token of its answer.
struct Reference {
  std::vector<TokenId> prompt, answer;
  std::vector<std::vector<TokenId>> drafts;  // -1: the reference leaves it open
};

std::vector<TokenId> IdsOf(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) {
    ids.push_back(id.is_null() ? -1 : static_cast<TokenId>(id.as_int()));
  }
  return ids;
}

std::vector<Json> Lines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    auto json = ParseJson(line);
    EXPECT_TRUE(json.ok()) << path;
    if (json.ok()) lines.push_back(std::move(json).value());
  }
  return lines;
}

// Reads them from this tree, which holds prompts and answers beside the proposals, or from the data
// beside it, which has a file of each.
std::vector<Reference> ReadReferences(const std::string& folder) {
  std::vector<Reference> references;
  const bool is_apart = std::filesystem::exists(folder + "/answers.jsonl");
  const std::vector<Json> proposals = Lines(folder + "/proposals.jsonl");
  const auto prompts = is_apart ? Lines(folder + "/prompts.jsonl") : proposals;
  const auto answers = is_apart ? Lines(folder + "/answers.jsonl") : proposals;
  for (size_t i = 0; i < proposals.size(); ++i) {
    Reference reference;
    reference.prompt = IdsOf(*prompts[i].Find(is_apart ? "prompt_token_ids" : "prompt"));
    reference.answer = IdsOf(*answers[i].Find(is_apart ? "token_ids" : "answer"));
    for (const Json& drafts : proposals[i].Find("drafts")->as_array()) {
      reference.drafts.push_back(IdsOf(drafts));
    }
    references.push_back(std::move(reference));
  }
  return references;
}

// A target and its layer, and one row whose tokens the test knows.
class DraftedRow {
 public:
  // `head`: the directory of a head that drafts; "": a layer in the target's files does.
  // `copied_head`: ModelConfig::copied_head of the layer.
  DraftedRow(const std::string& folder, const std::string& head, int32_t page_size,
             const std::string& copied_head = "") {
    auto config = LoadModelConfig(folder);
    auto checkpoint = Checkpoint::Open(folder);
    MINISGL_CHECK(config.ok(), "{}", config.status().message());
    MINISGL_CHECK(checkpoint.ok(), "{}", checkpoint.status().message());
    auto layer =
        head.empty() ? PredictionLayerOf(*config, **checkpoint) : LoadDraftHead(head, *config);
    MINISGL_CHECK(layer.ok(), "{}", layer.status().message());
    layer->copied_head = copied_head;
    ModelList models(*config);
    MINISGL_CHECK(models.Add(MakeDecoderModel(ModelRole::kDrafter, *layer, head)).ok(), "added");
    auto files = ModelFiles::Open(models, folder);
    MINISGL_CHECK(files.ok(), "{}", files.status().message());
    auto plan = PlanMemory(models,
                           {.max_running_requests = 1,
                            .max_prefill_tokens = kStepTokens,
                            .max_step_drafts = kProposals,
                            .max_seq_len = kLength,
                            .page_size = page_size},
                           uint64_t{1} << 32);
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    limits_ = plan->limits;
    EXPECT_TRUE(limits_.makes_drafts);
    auto ops = MakeCpuOps({.num_threads = 1, .target = TargetOfF32Activations()});
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    ops_ = std::move(ops).value();
    auto state = ModelState::Make(models, *files, *plan, Rank(), ops_.get());
    MINISGL_CHECK(state.ok(), "{}", state.status().message());
    state_ = std::move(state).value();
    EXPECT_EQ(state_->drafter()->weight_bytes(), plan->models[1].weight_bytes);
    MINISGL_CHECK(state_->TakePages(limits_.num_pages, 0).ok(), "pages");
    TokenDrafter::Passes passes;
    passes.run_layers = [this](const ForwardInput& input) { state_->RunDrafter(input, tables_); };
    passes.logits = [this](const ForwardInput& input) { return state_->drafter()->Logits(input); };
    passes.states = [this](const ForwardInput& input) { return state_->drafter()->States(input); };
    passes.cluster_scores = [this](const ForwardInput& input) {
      return state_->drafter()->ClusterScores(input);
    };
    passes.add_transitions = [this](const int32_t* ids, int64_t count, float* logits) {
      state_->drafter()->AddTransitions(ids, count, logits);
    };
    passes.write_keys = [this](const ForwardInput& input) {
      state_->WriteDrafterKeys(input, tables_);
    };
    auto drafter = TokenDrafter::Make(limits_, *layer, std::move(passes), ops_.get());
    MINISGL_CHECK(drafter.ok(), "{}", drafter.status().message());
    drafter_ = std::move(drafter).value();
    page_table_.resize(static_cast<size_t>(CeilDiv(kLength, page_size)));
    std::iota(page_table_.rbegin(), page_table_.rend(), 0);  // no page is where its place is
    pool_.resize(kLength);
    tables_ = {.page_table = page_table_.data(),
               .page_table_stride = std::ssize(page_table_),
               .token_pool = pool_.data(),
               .token_pool_stride = kLength};
  }

  // Runs target and layer over the tokens [begin, end) of `text`, the row's next.
  void Extend(const std::vector<TokenId>& text, int32_t begin, int32_t end) {
    std::copy(text.begin() + begin, text.begin() + end, pool_.begin() + begin);
    const BatchPlan plan = PlanOf(begin, end, 0);
    const auto count = static_cast<size_t>(end - begin);
    std::vector<int32_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    const StateSlot next = state_slot_ == 0 ? 1 : 0;
    const StateSpan spans[] = {
        {.begin = 0, .row_first = 0, .read = state_slot_, .write = next},
        {.begin = plan.num_tokens(), .row_first = 1, .read = next, .write = next}};
    const bool has_states = limits_.num_state_slots > 0;
    state_->RunLayers({.num_tokens = plan.num_tokens(),
                       .num_rows = 1,
                       .token_ids = pool_.data() + begin,
                       .positions = plan.positions.data(),
                       .slots = plan.slots.data(),
                       .table_row = plan.table_row.data(),
                       .row_begin = plan.row_begin.data(),
                       .kv_len = plan.kv_len.data(),
                       .state_segments = {.spans = spans, .count = has_states ? 1 : 0}},
                      tables_);
    state_slot_ = next;
    if (drafter_->mixes_states()) {
      drafter_->TakeStates(state_->MixedStates(0, end - begin).f32(), 0, end - begin);
    }
    for (size_t i = 0; i < count && !drafter_->mixes_states();
         ++i) {  // the workspace has room for few
      const auto states = state_->States({.logit_tokens = all.data() + i, .num_logit_tokens = 1});
      drafter_->TakeStates(states.f32(), static_cast<int64_t>(i), 1);
    }
    const int32_t none = 0;
    drafter_->Feed(plan, tables_, &none, {});
  }

  // What the layer proposes after the token at `place` of `text`. Its target has not run there.
  std::vector<TokenId> Propose(const std::vector<TokenId>& text, int32_t place) {
    pool_[static_cast<size_t>(place)] = text[static_cast<size_t>(place)];
    BatchPlan plan = PlanOf(place, place + 1 + kProposals, kProposals);
    plan.makes_drafts = {1};
    drafter_->Propose(plan, tables_, DraftGuide());
    const auto first = pool_.begin() + place + 1;
    return {first, first + kProposals};
  }

 private:
  BatchPlan PlanOf(int32_t begin, int32_t end, int32_t num_drafts) const {
    BatchPlan plan;
    for (int32_t place = begin; place < end; ++place) {
      const int32_t page = page_table_[static_cast<size_t>(place / limits_.page_size)];
      plan.positions.push_back(place);
      plan.slots.push_back(int64_t{page} * limits_.page_size + place % limits_.page_size);
    }
    plan.table_row = {0};
    plan.row_begin = {0, end - begin};
    plan.kv_len = {end};
    plan.wants_token = {num_drafts > 0 ? uint8_t{1} : uint8_t{0}};
    plan.num_drafts = {num_drafts};
    plan.extras.hidden = {{0, end - begin}};
    return plan;
  }

  EngineLimits limits_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<ModelState> state_;
  std::unique_ptr<TokenDrafter> drafter_;
  std::vector<int32_t> page_table_;
  std::vector<TokenId> pool_;
  StepTables tables_;
  StateSlot state_slot_ = kZeroState;
};

// Calls visit(reference, i, proposals) with what is proposed after token i of each answer, with the
// prompt in chunks. `head`: as DraftedRow has it; its folder has the reference, else that of the
// model. `file`: the model as a GGUF file; "": its folder is read.
template <typename Visit>
void ForEachProposal(const std::string& folder, int32_t page_size, int32_t chunk,
                     const std::string& head, const std::string& file, const Visit& visit) {
  for (const Reference& reference : ReadReferences(head.empty() ? folder : head)) {
    DraftedRow row(file.empty() ? folder : file, head, page_size);
    std::vector<TokenId> text = reference.prompt;
    const auto prompt_len = static_cast<int32_t>(text.size());
    for (int32_t begin = 0; begin < prompt_len; begin += chunk) {
      row.Extend(text, begin, std::min(begin + chunk, prompt_len));
    }
    for (size_t i = 0; i < reference.drafts.size(); ++i) {
      text.push_back(reference.answer[i]);
      const auto place = static_cast<int32_t>(text.size()) - 1;
      visit(reference, i, row.Propose(text, place));
      row.Extend(text, place, place + 1);
    }
  }
}

// Compares all proposals; returns how many the reference has.
int64_t CompareProposals(const std::string& folder, int32_t page_size, int32_t chunk,
                         const std::string& head = "", const std::string& file = "") {
  int64_t compared = 0;
  ForEachProposal(folder, page_size, chunk, head, file,
                  [&](const Reference& reference, size_t i, const std::vector<TokenId>& found) {
                    for (size_t k = 0; k < kProposals; ++k) {
                      const TokenId wanted = reference.drafts[i][k];
                      if (wanted < 0) continue;
                      EXPECT_EQ(found[k], wanted)
                          << folder << ", after token " << i << ", draft " << k;
                      ++compared;
                    }
                  });
  return compared;
}

// How many of the proposals after token i are the answer's next tokens, one after the other.
size_t NumRight(const Reference& reference, size_t i, const std::vector<TokenId>& proposals) {
  size_t right = 0;
  while (right < proposals.size() && i + 1 + right < reference.answer.size() &&
         proposals[right] == reference.answer[i + 1 + right]) {
    ++right;
  }
  return right;
}

TEST(TokenDrafterTest, ProposesWhatTheReferenceProposes) {
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/prediction/";
  for (const char* name : {"glm4_moe", "deepseek_v3", "glm4_moe_lite"}) {
    for (const auto& [page_size, chunk] : {std::pair{16, 64}, {1, 5}, {4, 7}}) {
      EXPECT_EQ(CompareProposals(folder + name, page_size, chunk), 3 * 12 * kProposals) << name;
    }
  }
}

// The layer that was trained for the demo model (tests/models/train_wren_mtp.py). Its reference
// sums in another order: of two tokens that nearly tie it may choose the other.
TEST(TokenDrafterTest, TheTrainedLayerIsRightAsOftenAsItsReference) {
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/models/wren-mtp";
  size_t num_proposals = 0, num_equal = 0, num_right = 0, num_right_of_reference = 0;
  ForEachProposal(folder, 16, 64, "", "",
                  [&](const Reference& reference, size_t i, const std::vector<TokenId>& found) {
                    ++num_proposals;
                    num_equal += found == reference.drafts[i] ? 1 : 0;
                    num_right += NumRight(reference, i, found);
                    num_right_of_reference += NumRight(reference, i, reference.drafts[i]);
                  });
  ASSERT_GT(num_proposals, 200u);
  EXPECT_GE(static_cast<double>(num_equal), 0.99 * static_cast<double>(num_proposals));
  EXPECT_NEAR(static_cast<double>(num_right), static_cast<double>(num_right_of_reference),
              0.01 * static_cast<double>(num_right_of_reference));
  // The layer was trained: with K = 3 more than one draft of a step is right.
  EXPECT_GT(num_right_of_reference, num_proposals);
}

// A file that llama.cpp's converter made of the same model.
TEST(TokenDrafterTest, TheLayerOfAGgufFileProposesTheSame) {
  const std::string model = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/prediction/glm4_moe";
  EXPECT_EQ(CompareProposals(model, 4, 7, "", model + ".gguf"), 3 * 12 * kProposals);
}

// A copy of the output head in 4 bits chooses another token only where two nearly tie.
TEST(TokenDrafterTest, ALayerMayReadACopyOfTheHead) {
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/prediction/glm4_moe";
  const Reference reference = ReadReferences(folder).back();
  int64_t num_equal = 0;
  DraftedRow exact(folder, "", 16), copied(folder, "", 16, "lm_head.weight");
  std::vector<TokenId> text = reference.prompt;
  for (DraftedRow* const row : {&exact, &copied}) {
    row->Extend(text, 0, static_cast<int32_t>(text.size()));
  }
  for (const TokenId token : reference.answer) {
    text.push_back(token);
    const auto place = static_cast<int32_t>(text.size()) - 1;
    const std::vector<TokenId> wanted = exact.Propose(text, place);
    num_equal += copied.Propose(text, place)[0] == wanted[0] ? 1 : 0;
    exact.Extend(text, place, place + 1);
    copied.Extend(text, place, place + 1);
  }
  EXPECT_GE(num_equal, std::ssize(reference.answer) - 2);
}

TEST(TokenDrafterTest, HeadsProposeWhatTheirReferencesPropose) {
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/draft_heads/";
  const std::pair<const char*, int64_t> heads[] = {
      {"eagle3", 108}, {"eagle3_ids", 108}, {"eagle3_speculators", 106},
      {"dflash", 108}, {"dspark", 108},     {"dspark_plain", 108},
      {"glimmer", 108}};
  for (const auto& [name, count] : heads) {
    for (const auto& [page_size, chunk] : {std::pair{16, 64}, {1, 5}, {4, 7}}) {
      EXPECT_EQ(CompareProposals(folder + "target", page_size, chunk, folder + name), count)
          << name;
    }
  }
}

TEST(TokenDrafterTest, AssistantsProposeWhatTheirReferencesPropose) {
  const std::string folder = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/assistant/";
  for (const char* name : {"plain", "ordered"}) {
    for (const auto& [page_size, chunk] : {std::pair{16, 64}, {1, 5}, {4, 7}}) {
      EXPECT_EQ(CompareProposals(folder + "target", page_size, chunk, folder + name), 108) << name;
    }
  }
}

TEST(TokenDrafterTest, ProposesWhatTheReferenceOfQwenProposes) {
  const char* const shared = std::getenv("MINISGL_SHARED");
  const std::string folder =
      std::string(shared != nullptr ? shared : MINISGL_SOURCE_DIR "/../shared") +
      "/models/drafts/qwen3_5";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no shared models/drafts beside the project";
  for (const auto& [page_size, chunk] : {std::pair{16, 64}, {4, 7}}) {
    EXPECT_EQ(CompareProposals(folder, page_size, chunk), 697);
  }
}

}  // namespace
}  // namespace minisgl::engine
