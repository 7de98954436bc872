// Drafts by a model beside the target, in the steps of a device. It makes the drafts that
// token_drafter.h describes. Its passes are queued around those of the target, and the host does
// not wait for them, except in guided steps (DraftStep::is_guided): there it says among which
// tokens each draft is chosen (device_drafter_choices.cc), and the target's layers are queued after
// the last draft.
//
// All that a step's passes read is listed on the host as the step is uploaded (List): a row that
// drafts has no step in flight, so its known tokens are. The drafts themselves stay on the device.
// A pass of Propose reads the tokens that the one before it put into the token pool. The pass after
// the step reads rejected tokens, too: their keys are overwritten before any row sees them. Of
// their states none is kept (DeviceOps::KeepStates).
//
// Passes of few rows or tokens are graphs (draft_pass.h). What the passes read of the target's
// states is gathered outside of graphs, because the target's step decides where it stands.
//
// Steps with drafts overlap little: the places of the next step follow from the number of drafts
// that were accepted, and the host lists them. It does so while the drafter reads the step (Feed),
// which the results do not wait for.
//
// Used by one thread, except for TakeLoaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/draft_pass.h"
#include "engine/planned_heads.h"
#include "engine/step_state.h"
#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/device_array.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/model_list.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class DeviceDrafter {
 public:
  // Null if `models` has no drafter. `counts` and `raw_logits`: workspace of DeviceSampleParams for
  // as many places and tokens as the drafter's logits have, at least. All must outlive it.
  static Result<std::unique_ptr<DeviceDrafter>> Make(const ModelList& models, StepState* state,
                                                     uint32_t* counts, float* raw_logits,
                                                     DeviceOps* ops);
  // Bytes that it takes for steps, and for each page; nullopt if 2^64 or more.
  static std::optional<uint64_t> StepBytes(const EngineLimits& limits, const ModelConfig& config,
                                           DType dtype);
  static std::optional<uint64_t> PageBytes(const ModelConfig& config, DType dtype);

  // Takes the memory of a step.
  Result<DraftStep> MakeStep() const;
  // The graphs that there may be (draft_pass.h).
  std::vector<DraftGraphSize> GraphSizes(int32_t max_rows, int32_t max_tokens) const {
    return DraftGraphSizes(config_, limits_, max_rows, max_tokens);
  }
  // Captures a graph. Smaller graphs of its part are captured before it. Runs the pass once before,
  // so that nothing is initialised during the capture. An error keeps the existing graphs. REQUIRES
  // that `padding` and the device are idle.
  Status Capture(const DraftGraphSize& size, DraftStep* padding);
  void ClearGraphs() { graphs_.clear(); }
  // Frees what is kept for pages, and takes it for so many.
  Status TakePages(int32_t num_pages);

  // Lists the passes of `plan` and copies them to the device. `placed`: embeddings of the plan's
  // pictures. Waits until the Feed of the step that had the memory before has ended.
  void List(const BatchPlan& plan, std::span<const PlacedEmbeddings> placed, DraftStep* step);
  // Writes drafts to the token pool. Call it after the plan's table writes. REQUIRES a step that is
  // not guided.
  void Propose(const DraftStep& step);
  // The same for a guided step, draft by draft: BeginDrafts, then for each index up to
  // DraftStep::NumIndices MakeMasks, which waits for the drafts before, and ChooseDrafts, and at
  // the end TakeChosen if they are wanted. Of several ranks the first one makes the masks of all.
  void BeginDrafts(const DraftStep& step);
  // `guide`: null if no row has a mask.
  Result<DraftMasks> MakeMasks(int32_t index, const DraftGuide* guide, DraftStep* step);
  void ChooseDrafts(int32_t index, const DraftMasks& masks, const DraftStep& step);
  // Waits for the drafts of `index`, and adds them to DraftRow::chosen.
  Status TakeChosen(int32_t index, DraftStep* step);
  // Takes the target's states behind the tokens that the drafter reads. Call it after the target's
  // layers, before its logits.
  void TakeStates(const BatchPlan& plan);
  // Runs over the tokens of the step, which may be collected meanwhile: List waits until its memory
  // is free again. `num_accepted`: [R] on the device. Call it after the accepted tokens are in the
  // pool.
  void Feed(const int32_t* num_accepted, DraftStep* step);
  // Waits for the last Feed.
  Status WaitForFeed() const { return was_fed_ ? ops_->Wait(fed_.get()) : Status(); }

  // Pages get the keys and values of whole blocks (TokenDrafter::TakeLoaded). Any thread, while no
  // step uses the pages.
  void TakeLoaded(std::span<const PageId> pages);

 private:
  DeviceDrafter(const ModelConfig& whole, StepState* state, uint32_t* counts, float* raw_logits,
                DeviceOps* ops);
  Status TakeArrays();
  Status TakeGuidedArrays();

  bool is_block() const { return config_.prediction == PredictionLayer::kBlock; }
  bool is_assistant() const { return config_.prediction == PredictionLayer::kAssistant; }
  bool has_clusters() const { return config_.draft_head.num_clusters > 0; }
  bool has_transitions() const { return config_.draft_head.transition_rank > 0; }
  // True if drafts are not chosen by the logits of a pass alone, so that graphs end with these.
  bool chooses_apart() const { return has_clusters() || has_transitions(); }
  // True if the row of a token has the rotary position before the token's, and no row has the
  // first.
  bool stands_before() const { return reads_before() && !is_assistant(); }
  // True if rows read the state before their token.
  bool reads_before() const { return width_ > 0 && !is_block(); }
  // states_ has a row for each token of the step. If rows of the drafter read the states before
  // them, a row for each page and a row of zeros stand in front.
  int32_t RowOfZeros() const { return num_pages_ + 1; }
  int32_t RowOfToken(int32_t token) const { return (reads_before() ? num_pages_ + 2 : 0) + token; }
  // The row of the state before `place`, at which a page of another step ends or goes on.
  int32_t RowBefore(int32_t table_row, int32_t place) const;
  void ListDrafts(const BatchPlan& plan, DraftStep* step);
  void ListBlocks(const BatchPlan& plan, DraftStep* step);
  void ListFeed(const BatchPlan& plan, std::span<const PlacedEmbeddings> placed, DraftStep* step);
  void ListKept(const BatchPlan& plan, int32_t row, int32_t begin, int32_t end);
  template <typename T>
  size_t Append(const std::vector<T>& values);
  size_t AppendLists(const DraftShape& shape, const DraftLists& lists);
  // Lists a pass, padded to its graph if there is one.
  DraftPass AppendPass(DraftPart part, const DraftStep& step, DraftLists* lists);
  const DraftLists& PadForGraph(const DraftGraphSize& size, DraftLists* lists) const;
  void GatherStates(const DraftStep& step, const DraftPass& pass);
  // Runs a pass over its arrays in `memory`. Returns the logits of drafts; null: it makes none.
  float* RunLayers(DraftPart part, const DraftShape& shape, const std::byte* memory,
                   std::span<const PlacedEmbeddings> placed = {});
  // The same, and the choice among all tokens. A graph holds these operations.
  float* RunPart(DraftPart part, const DraftShape& shape, const std::byte* memory,
                 std::span<const PlacedEmbeddings> placed = {});
  // Returns the logits of a pass whose drafts are chosen apart; else they are used up.
  float* RunPass(DraftPart part, const DraftStep& step, const DraftPass& pass);
  // Chooses draft `index` of all rows by `logits` of its pass, or of the blocks. `mask_of` and
  // `masks`: see DeviceSampleParams.
  void ChooseIndex(const DraftStep& step, int32_t index, float* logits,
                   const int32_t* mask_of = nullptr, const uint32_t* masks = nullptr);
  // Runs the layers of the pass that makes draft `index` of a guided step, and keeps its logits.
  void RunGuided(const DraftStep& step, int32_t index);
  // Adds a mask of `candidates` and of `allowed`, a mask over the target's tokens; either may be
  // empty: all tokens. Leaves out `allowed` if that would leave none.
  void AddMask(std::span<const TokenId> candidates, std::span<const uint32_t> allowed,
               DraftMasks* masks) const;
  // Writes ids, positions and slots of a pass's tokens to token_ids_, positions_ and slots_. Arrays
  // of the device: table_row [num_rows], row_begin [num_rows + 1], kv_len [num_rows].
  void PrepareTokens(const int32_t* table_row, const int32_t* row_begin, const int32_t* kv_len,
                     int32_t num_rows, int32_t num_tokens);
  // The input of a pass, with its tokens prepared.
  ForwardInput Prepare(const DraftShape& shape, const std::byte* memory, bool decodes);
  void PlanAttention(const ForwardInput& input);
  // Puts the most likely tokens of `logits` [count] into sampled_ and the pool, there at places
  // kv_len[i]. `mask_of` and `masks`: see DeviceSampleParams.
  void Choose(float* logits, int32_t count, const int32_t* table_row, const int32_t* kv_len,
              const int32_t* mask_of = nullptr, const uint32_t* masks = nullptr);
  void WriteMasks(const DraftStep& step);

  StepState* const state_;
  DeviceOps* const ops_;
  const ModelConfig config_;  // of the drafter, whole
  const EngineLimits limits_;
  const int64_t width_;                    // of the states that it reads; 0: none
  const bool has_parts_;                   // it turns by DraftLayout::rope
  const std::vector<PlannedHeads> heads_;  // of the rank
  uint32_t* const counts_;
  float* const raw_logits_;
  int32_t num_pages_ = 0;
  ActivationArray states_;              // [num_pages + 2 + max_step_tokens, width], or less
  ActivationArray inputs_;              // [max_step_tokens, width] what a pass reads
  DeviceArray<int32_t> all_;            // 0, 1, 2, ..., max_step_tokens
  DeviceArray<int32_t> token_ids_;      // [max_step_tokens]
  DeviceArray<int32_t> positions_;      // likewise
  DeviceArray<int64_t> slots_;          // likewise
  DeviceArray<int32_t> accepted_;       // [rows that draft] of no drafts
  DeviceArray<DeviceSampling> greedy_;  // likewise
  DeviceArray<DeviceToken> sampled_;    // likewise, of the pass that ran last
  DeviceArray<std::byte> front_;        // the arrays that graphs read
  DeviceArray<int32_t> row_ids_;        // DraftHeadConfig::row_ids
  struct Graph {
    DraftGraphSize size;
    std::unique_ptr<DeviceGraph> graph;
    float* logits;
  };
  std::vector<Graph> graphs_;  // in ascending order within a part
  // The memory of guided steps, of which one runs at a time:
  float* logits_ = nullptr;               // of the pass that ran last
  const float* scores_ = nullptr;         // likewise, of clusters
  DeviceArray<std::byte> masks_;          // DraftMasks: mask_of, then the words
  std::shared_ptr<void> host_masks_;      // likewise
  std::shared_ptr<void> host_scores_;     // f32 [rows that draft, num_clusters]
  std::shared_ptr<void> host_sampled_;    // DeviceToken [rows that draft]
  std::unique_ptr<DeviceEvent> scored_;   // after host_scores_
  std::unique_ptr<DeviceEvent> drafted_;  // after host_sampled_
  bool was_drafted_ = false;
  std::unique_ptr<DeviceEvent> fed_;  // after the last Feed
  bool was_fed_ = false;
  // On the host:
  std::vector<int32_t> page_table_;  // as the plans so far have written it
  std::vector<uint8_t> is_loaded_;   // [num_pages + 1] the state behind the page is not known
  std::vector<std::byte> list_;      // of the step that is listed
  std::vector<KeptState> kept_;      // likewise
};

}  // namespace minisgl::engine
