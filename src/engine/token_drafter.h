// Drafts by a model beside the target, in the steps of the CPU's engine.
//
// The drafter is one of four kinds (ModelConfig::prediction):
// - A small model. Its row of token i reads that token alone.
// - A layer for multi-token prediction, or an EAGLE-3 head. Its row of token i reads the token and
//   the target's state at token i - 1, and has the rotary position i - 1. Token 0 has no row: rows
//   attend to keys from 1 on.
// - A DFlash or DSpark head. It makes keys and values for token i of the target's state there, and
//   has rows for drafts alone.
// - An assistant of Gemma 4. It reads the target's keys and has none, and has rows for drafts
//   alone, all at the place of the last known token. The first of them reads the state before it.
// The first three write the keys and values of token i at that token's slot. So what stands in a
// slot is decided by the tokens up to it, as the target's keys and values are, and prefixes are
// shared by the same pages.
//
// After a step the drafter reads the step's tokens, less the drafts that were rejected (Feed). For
// the second and the fourth kind the state behind the last token of each page is kept, for the row
// of the token after it. Before a step it drafts (Propose). The first row of a small model or a
// layer is that of the last known token, the next ones read the draft before them, and in place of
// the target's state the one behind the row before. A DFlash head drafts all at once: a block of
// the last known token and of mask tokens. So does a DSpark head, which then chooses one draft
// after the other, because what the draft before makes likely adds to its logits. These keys are
// overwritten once the drafts are verified.
// A row with a page whose keys the drafter has not written, because steps of many rows leave it
// out, has no good drafts: its last token is repeated.
//
// Beside pictures a layer reads their embeddings in place of those of ids, and turns its queries
// and keys by the positions of three parts, less one, if its rotary has such parts. Other kinds
// read ids and turn by places. Adapters change the target alone.
//
// Used by one thread, except for TakeLoaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/draft_pictures.h"
#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "minisgl/plan/given_positions.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class TokenDrafter {
 public:
  // The passes of the drafter, on all ranks. Tables, keys and values are filled in there.
  struct Passes {
    std::function<void(const ForwardInput&)> run_layers;
    std::function<float*(const ForwardInput&)> logits;  // [N, V]
    // Decoder::AddTransitions
    std::function<void(const int32_t* ids, int64_t count, float* logits)> add_transitions;
    std::function<ConstActivationPtr(const ForwardInput&)> states;
    std::function<void(const ForwardInput&)> write_keys;  // Decoder::WriteKeys
    std::function<const float*(const ForwardInput&)> cluster_scores;
  };
  // `config`: of the drafter, whole. `ops` must outlive it. kOutOfMemory.
  static Result<std::unique_ptr<TokenDrafter>> Make(const EngineLimits& limits,
                                                    const ModelConfig& config, Passes passes,
                                                    Ops* ops);
  // Bytes that it takes for steps, and for each page; nullopt if 2^64 or more.
  static std::optional<uint64_t> StepBytes(const EngineLimits& limits, const ModelConfig& config);
  static std::optional<uint64_t> PageBytes(const ModelConfig& config);

  // Writes the drafts of rows with BatchPlan::makes_drafts to the token pool; those of masked rows
  // are tokens that `guide` allows, if any. Call it after the plan's table writes.
  void Propose(const BatchPlan& plan, const StepTables& tables, const DraftGuide& guide);

  // True if it reads the target's states (TakeStates).
  bool wants_states() const { return width_ > 0; }
  // True if it is a head, which mixes states of several layers (Decoder::MixTargetStates).
  bool mixes_states() const { return kind_ == PredictionLayer::kEagle || is_block(); }
  // The states [count, width] of the target behind tokens [first, first + count) of the step; of a
  // head what it mixed of them.
  void TakeStates(const float* states, int64_t first, int64_t count);
  // Runs over the tokens of the plan's HiddenSpans, whose states were taken. `num_accepted`: [R].
  // `placed`: embeddings of the step's pictures.
  void Feed(const BatchPlan& plan, const StepTables& tables, const int32_t* num_accepted,
            std::span<const PlacedEmbeddings> placed);

  // Pages get the keys and values of whole blocks, the drafter's among them. The states behind them
  // are not known: a row of a layer that goes on from one reads zeros. Any thread, while no step
  // uses the pages.
  void TakeLoaded(std::span<const PageId> pages);

 private:
  TokenDrafter(const EngineLimits& limits, const ModelConfig& config, Passes passes)
      : limits_(limits),
        kind_(config.prediction),
        head_(config.draft_head),
        vocab_size_(config.vocab_size),
        num_rows_(config.draft_head.row_ids == nullptr
                      ? std::min(config.vocab_size, limits.vocab_size)
                      : config.vocab_size),
        num_ids_(config.is_draft_head() ? config.draft_head.num_ids : config.vocab_size),
        width_(WidthOf(config)),
        hidden_size_(config.hidden_size),
        has_parts_(TurnsByParts(config)),
        passes_(std::move(passes)) {}
  // Floats of a state that it reads; 0: it reads none.
  static int64_t WidthOf(const ModelConfig& config);
  bool is_layer() const { return IsLayer(kind_); }
  bool is_block() const { return kind_ == PredictionLayer::kBlock; }
  bool is_assistant() const { return kind_ == PredictionLayer::kAssistant; }
  // True if rows read the state before their token.
  bool reads_before() const { return width_ > 0 && !is_block(); }

  // A pass over rows of the drafter.
  struct Pass {
    std::vector<TokenId> token_ids;  // [T], and so on as in ForwardInput
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    std::vector<int32_t> table_row, row_begin, kv_len;
    std::vector<int32_t> key_end;              // [T] of a block
    std::vector<RopePosition> rope_positions;  // [T]; empty: the drafter has no such parts
    std::vector<PlacedEmbeddings> placed;
    void Clear();
  };
  // A row that drafts.
  struct Draft {
    int32_t table_row;
    int32_t place;  // of the last known token
    int32_t count;
    TokenId last;
    int32_t row;  // of the plan
    bool is_masked;
    RopePosition position;  // of the last known token
  };
  static int64_t SlotOf(const StepTables& tables, int32_t page_size, int32_t table_row,
                        int32_t place);
  ForwardInput InputOf(const Pass& pass);
  // True if the drafter has written the keys of the row's tokens before `place`.
  bool KnowsKeys(const StepTables& tables, int32_t table_row, int32_t place) const;
  void CopyKept(int64_t page, float* to) const;
  void ProposeOne(const StepTables& tables, int32_t index, std::vector<Draft>* drafts);
  void ProposeBlocks(const StepTables& tables, std::vector<Draft> drafts);
  // The most likely token of a row of logits for place `index` of `draft`, whose earlier drafts are
  // in the token pool.
  TokenId Best(const float* logits, const StepTables& tables, const Draft& draft, int32_t index);
  // The same among the tokens of mask_ if `is_masked`, and of an assistant's best clusters;
  // nullopt: the drafter has none of them.
  std::optional<TokenId> BestAllowed(const float* logits, bool is_masked) const;
  // Marks the keys of tokens that the plan computes and does not feed as unknown.
  void ForgetOthers(const BatchPlan& plan);
  // Adds a row of the drafter for token `id` at `place` to the pass.
  void AddToken(TokenId id, int32_t place, int64_t slot, const RopePosition& position);
  // Adds rows of the drafter for the tokens [begin, end) of the step.
  void AddTokens(const BatchPlan& plan, const StepTables& tables, int32_t row, int32_t begin,
                 int32_t end, std::span<const PlacedEmbeddings> placed);
  // Keeps the states of the same tokens, and counts their keys as known.
  void KeepStates(const BatchPlan& plan, int32_t begin, int32_t end);

  const EngineLimits limits_;
  const PredictionLayer kind_;
  const DraftHeadConfig head_;
  const int64_t vocab_size_;  // of the drafter's logits
  const int64_t num_rows_;    // of them, those of tokens of the target
  const int64_t num_ids_;     // of its embedding
  const int64_t width_;       // of the states; 0: a small model reads none
  const int64_t hidden_size_;
  const bool has_parts_;
  const Passes passes_;
  DeviceArray<float> states_;       // [max_step_tokens, width] behind the tokens of the step
  DeviceArray<float> inputs_;       // likewise, what the next pass reads
  DeviceArray<float> kept_;         // [num_pages + 1, width] behind the last token of each page
  std::vector<int32_t> num_known_;  // [num_pages + 1] keys of each page, from its first one on
  Pass pass_;
  const DraftGuide* guide_ = nullptr;  // of Propose
  std::vector<uint32_t> mask_;         // of one draft
  std::vector<TokenId> candidates_;    // of one draft of an assistant with clusters
  std::vector<int32_t> all_;           // 0, 1, 2, ...
};

}  // namespace minisgl::engine
