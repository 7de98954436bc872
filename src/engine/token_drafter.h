// Drafts by a model beside the target, in the steps of the CPU's engine.
//
// The drafter is a small model, whose row of token i reads that token alone, or a layer for
// multi-token prediction (ModelConfig::prediction), whose row of token i reads the token and the
// target's state at token i - 1 and has the rotary position i - 1. Either way the row writes its
// keys and values at token i's slot. So what stands in a slot is decided by the tokens up to it, as
// the target's keys and values are, and prefixes are shared by the same pages. For a layer token 0
// has no row: rows attend to keys from 1 on.
//
// After a step the drafter runs over the step's tokens, less the drafts that were rejected (Feed).
// For a layer the state behind the last token of each page is kept, for the row of the token after
// it. Before a step it drafts (Propose): its first row is that of the last known token, the next
// ones read the draft before them, and a layer its own state; these keys are overwritten once the
// drafts are verified. A row with a page whose keys the drafter has not written, because steps of
// many rows leave it out, has no good drafts: its last token is repeated.
//
// Used by one thread, except for TakeLoaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class TokenDrafter {
 public:
  // The passes of the drafter, on all ranks. Tables, keys and values are filled in there.
  struct Passes {
    std::function<void(const ForwardInput&)> run_layers;
    std::function<const float*(const ForwardInput&)> logits;  // [N, V]
    std::function<ConstActivationPtr(const ForwardInput&)> states;
  };
  // `config`: of the drafter, whole. `ops` must outlive it. kOutOfMemory.
  static Result<std::unique_ptr<TokenDrafter>> Make(const EngineLimits& limits,
                                                    const ModelConfig& config, Passes passes,
                                                    Ops* ops);
  // Bytes that it takes for steps, and for each page; nullopt if 2^64 or more.
  static std::optional<uint64_t> StepBytes(const EngineLimits& limits, const ModelConfig& config);
  static std::optional<uint64_t> PageBytes(const ModelConfig& config);

  // Writes the drafts of rows with BatchPlan::makes_drafts to the token pool. Call it after the
  // plan's table writes.
  void Propose(const BatchPlan& plan, const StepTables& tables);

  // True if it reads the target's states (TakeStates).
  bool wants_states() const { return is_layer(); }
  // The states [count, width] of the target behind tokens [first, first + count) of the step.
  void TakeStates(const float* states, int64_t first, int64_t count);
  // Runs over the tokens of the plan's HiddenSpans, whose states were taken. `num_accepted`: [R].
  void Feed(const BatchPlan& plan, const StepTables& tables, const int32_t* num_accepted);

  // Pages get the keys and values of whole blocks, the drafter's among them. The states behind them
  // are not known: a row of a layer that goes on from one reads zeros. Any thread, while no step
  // uses the pages.
  void TakeLoaded(std::span<const PageId> pages);

 private:
  TokenDrafter(const EngineLimits& limits, const ModelConfig& config, Passes passes)
      : limits_(limits),
        vocab_size_(config.vocab_size),
        width_(config.is_prediction_layer() ? config.hidden_size : 0),
        passes_(std::move(passes)) {}
  // True if the drafter reads the target's states.
  bool is_layer() const { return width_ > 0; }

  // A pass over rows of the drafter.
  struct Pass {
    std::vector<TokenId> token_ids;  // [T], and so on as in ForwardInput
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    std::vector<int32_t> table_row, row_begin, kv_len;
    void Clear();
  };
  // A row that drafts.
  struct Draft {
    int32_t table_row;
    int32_t place;  // of the last known token
    int32_t count;
    TokenId last;
  };
  static int64_t SlotOf(const StepTables& tables, int32_t page_size, int32_t table_row,
                        int32_t place);
  ForwardInput InputOf(const Pass& pass);
  // True if the drafter has written the keys of the row's tokens before `place`.
  bool KnowsKeys(const StepTables& tables, int32_t table_row, int32_t place) const;
  void CopyKept(int64_t page, float* to) const;
  void ProposeOne(const StepTables& tables, int32_t index, std::vector<Draft>* drafts);
  // Marks the keys of tokens that the plan computes and does not feed as unknown.
  void ForgetOthers(const BatchPlan& plan);
  // Adds a row of the drafter for token `id` at `place` to the pass.
  void AddToken(TokenId id, int32_t place, int64_t slot);
  // Adds rows of the drafter for the tokens [begin, end) of the step.
  void AddTokens(const BatchPlan& plan, const StepTables& tables, int32_t row, int32_t begin,
                 int32_t end);
  // Keeps the states of the same tokens, and counts their keys as known.
  void KeepStates(const BatchPlan& plan, int32_t begin, int32_t end);

  const EngineLimits limits_;
  const int64_t vocab_size_;  // of the drafter
  const int64_t width_;       // of the target's states; 0: a small model reads none
  const Passes passes_;
  DeviceArray<float> states_;       // [max_step_tokens, width] behind the tokens of the step
  DeviceArray<float> inputs_;       // likewise, what the next pass reads
  DeviceArray<float> kept_;         // [num_pages + 1, width] behind the last token of each page
  std::vector<int32_t> num_known_;  // [num_pages + 1] keys of each page, from its first one on
  Pass pass_;
  std::vector<int32_t> all_;  // 0, 1, 2, ...
};

}  // namespace minisgl::engine
