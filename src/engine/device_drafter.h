// Drafts by a model beside the target, in the steps of a device. It makes the drafts that
// token_drafter.h describes. Its passes are queued around those of the target, and the host does
// not wait for them.
//
// All that a step's passes read is listed on the host as the step is uploaded (List): a row that
// drafts has no step in flight, so its known tokens are. The drafts themselves stay on the device.
// A pass of Propose reads the tokens that the one before it put into the token pool. The pass after
// the step reads rejected tokens, too: their keys are overwritten before any row sees them. Of
// their states none is kept (DeviceOps::KeepStates).
//
// Used by one thread, except for TakeLoaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

// DraftPass::row_begin of a pass whose rows have one token each.
inline constexpr size_t kOwnRows = ~size_t{0};

// Where a pass of the drafter finds its arrays in the step's memory, in bytes from its begin.
struct DraftPass {
  int32_t num_rows = 0, num_tokens = 0;
  size_t table_row = 0;         // i32 [num_rows]
  size_t row_begin = kOwnRows;  // i32 [num_rows + 1]
  size_t kv_len = 0;            // i32 [num_rows]
  size_t num_seen = 0;          // i32 [num_rows] of an assistant: keys that its rows see
  size_t positions = 0;         // i32 [num_tokens], of a pass that turns by others than places
  size_t key_end = 0;           // i32 [num_tokens] of a pass with a first key
  size_t states = 0;            // i32 [num_tokens] rows of the states that tokens read, if they do
  int32_t first = 0;  // of a pass of Propose: where its tokens begin in DraftStep::sampled
};

// The blocks of a DFlash head: what its one pass has beside a DraftPass, in the same memory.
struct DraftBlocks {
  int32_t num_drafts = 0;  // N, of all rows; 0: there are no blocks
  size_t key_end = 0;      // i32 [tokens of the pass]
  size_t masks = 0;        // i32 [N] the tokens that are drafted
  size_t table_row = 0;    // i32 [N] of each of them
  size_t kv_len = 0;       // i32 [N] its place
  int32_t num_writes = 0;
  size_t writes = 0;  // TokenPoolWrite [num_writes], which puts ids of masks into the pool
  size_t ids = 0;     // i32 [N]
};

// What a step in flight has for its drafts. On both sides it belongs to the step until that is
// collected.
struct DraftStep {
  std::vector<DraftPass> drafts;  // the i-th makes draft i of its rows
  DraftBlocks blocks;
  DraftPass feed;
  size_t kept = 0;  // KeptState [num_kept]
  int32_t num_kept = 0;
  // For each row that drafts for places with masks, in the order of rows: where its drafts are in
  // `sampled`.
  std::vector<std::vector<int32_t>> masked;
  int32_t num_sampled = 0;
  std::shared_ptr<void> meta, host_sampled;
  DeviceArray<std::byte> device_meta;
  DeviceArray<DeviceToken> sampled;  // [max_step_drafts]
  std::unique_ptr<DeviceEvent> drafted;
};

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
  // Frees what is kept for pages, and takes it for so many.
  Status TakePages(int32_t num_pages);

  // Lists the passes of `plan` and copies them to the device.
  void List(const BatchPlan& plan, DraftStep* step);
  // Writes drafts to the token pool. Call it after the plan's table writes.
  void Propose(const DraftStep& step);
  // Takes the target's states behind the tokens that the drafter reads. Call it after the target's
  // layers, before its logits.
  void TakeStates(const BatchPlan& plan);
  // Runs over the tokens of the step. `num_accepted`: [R] on the device. Call it after the accepted
  // tokens are in the pool.
  void Feed(const DraftStep& step, const int32_t* num_accepted);

  // Waits for the drafts of rows with masks, and returns them in the order of rows.
  Result<std::vector<std::vector<TokenId>>> WaitForDrafts(const DraftStep& step) const;

  // Pages get the keys and values of whole blocks (TokenDrafter::TakeLoaded). Any thread, while no
  // step uses the pages.
  void TakeLoaded(std::span<const PageId> pages);

 private:
  DeviceDrafter(const ModelConfig& whole, StepState* state, uint32_t* counts, float* raw_logits,
                DeviceOps* ops);
  Status TakeArrays();

  bool is_block() const { return config_.prediction == PredictionLayer::kBlock; }
  bool is_assistant() const { return config_.prediction == PredictionLayer::kAssistant; }
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
  void ListDrafts(const BatchPlan& plan, const std::vector<int32_t>& rows, DraftStep* step);
  void ListBlocks(const BatchPlan& plan, const std::vector<int32_t>& rows, DraftStep* step);
  void ListFeed(const BatchPlan& plan, DraftStep* step);
  void ListKept(const BatchPlan& plan, int32_t row, int32_t begin, int32_t end);
  template <typename T>
  size_t Append(const std::vector<T>& values);
  void GatherStates(const DraftStep& step, const DraftPass& pass);
  // Ids, positions and slots of the pass's tokens.
  ForwardInput Prepare(const DraftStep& step, const DraftPass& pass, bool decodes);
  void PlanAttention(const ForwardInput& input);
  // Puts the most likely tokens of `logits` [count] into the pool, at places kv_len[i].
  void Choose(float* logits, int32_t count, const int32_t* table_row, const int32_t* kv_len,
              DeviceToken* sampled);
  void ProposeInTurn(const DraftStep& step);
  void ProposeBlocks(const DraftStep& step);

  StepState* const state_;
  DeviceOps* const ops_;
  const ModelConfig config_;  // of the drafter, whole
  const EngineLimits limits_;
  const int64_t width_;                    // of the states that it reads; 0: none
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
  DeviceArray<int32_t> row_ids_;        // DraftHeadConfig::row_ids
  // On the host:
  std::vector<int32_t> page_table_;  // as the plans so far have written it
  std::vector<uint8_t> is_loaded_;   // [num_pages + 1] the state behind the page is not known
  std::vector<std::byte> list_;      // of the step that is listed
  std::vector<KeptState> kept_;      // likewise
};

}  // namespace minisgl::engine
