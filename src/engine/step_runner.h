// Runs one plan from start to end on the host: table writes, forward pass, sampling, acceptance of
// drafts. Used by one thread.
//
// With several ranks the layers and the output head run on all of them at once, and everything else
// on the first, whose page tables the others read.
//
// Two things differ from a device's step (device_step.h). Positions, slots and rows are read from
// the plan itself. Sampling is Ops::Sample, in double precision.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/adapter_store.h"
#include "engine/encoded_inputs.h"
#include "engine/pooled_prompts.h"
#include "engine/rank_threads.h"
#include "engine/step_state.h"
#include "engine/token_drafter.h"
#include "engine/whole_texts.h"
#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/ops.h"

namespace minisgl::engine {

class StepRunner {
 public:
  // Loads the models for `plan`. `ranks` moves in.
  static Result<std::unique_ptr<StepRunner>> Make(const ModelList& models, const ModelFiles& files,
                                                  const MemoryPlan& plan, EngineRanks ranks);

  const EngineLimits& limits() const { return state_->limits(); }
  // The state of each rank's model.
  std::vector<const ModelState*> models() const;

  // What a step with masked rows asks for.
  struct Sources {
    // Before sampling: the masks of the step; waits until they are there.
    std::function<const StepMasks&()> masks;
    // If the drafter makes drafts of such rows: the mask of each, then what it made, row by row.
    DraftGuide guide;
    std::function<void(std::vector<std::vector<TokenId>>)> give_drafts;
  };

  // May throw std::bad_alloc. The plan's table writes are applied all the same, so later steps may
  // run.
  StepResult Run(const BatchPlan& plan, const Sources& sources);

  // Null: all adapters of the list are loaded, or there are none.
  using MakeStore = std::function<std::unique_ptr<AdapterStore>(
      int32_t num_adapters, int32_t max_loaded, AdapterStore::Pack pack)>;
  std::unique_ptr<AdapterStore> MakeAdapterStore(const MakeStore& make) const;
  // Gives an adapter to the decoder of each rank, or takes it (an empty list). Not while a step
  // runs.
  void SetAdapter(AdapterSlot adapter, const RankAdapters& packed);

  // Pages got keys and values from the host.
  void TakeLoaded(std::span<const PageId> pages) {
    if (drafter_ != nullptr) drafter_->TakeLoaded(pages);
  }

 private:
  // The places of the step that runs, as SampleParams and AcceptTokensParams take them; kept from
  // step to step for their memory.
  struct Places {
    std::vector<int32_t> begin;  // [R + 1]
    std::vector<int32_t> token;  // [N]; so are the others, except num_accepted
    std::vector<const SamplingParams*> sampling;
    std::vector<const TokenId*> history;
    std::vector<int32_t> prompt_len, history_len;
    std::vector<RowResult> results;
    std::vector<DeviceToken> sampled;
    std::vector<const uint32_t*> masks;  // null: no mask; empty if no row has one
    std::vector<int32_t> num_accepted;   // [R]
  };
  // The places that score, likewise.
  struct Scored {
    std::vector<SamplingParams> of_row;  // [R] with num_logprobs alone
    std::vector<int32_t> token;          // [M]; so are the others
    std::vector<const SamplingParams*> sampling;
    std::vector<const TokenId*> history;  // null: a given token needs none
    std::vector<int32_t> lengths;         // 0
  };

  explicit StepRunner(EngineRanks ranks);
  Status Load(const ModelList& models, const ModelFiles& files, const MemoryPlan& plan);
  // Call the functions of StepState on every rank.
  void RunLayers(const ForwardInput& input);
  float* Logits(const ForwardInput& input);
  ConstActivationPtr States(const ForwardInput& input);
  // Calls `of` with the state of each rank's model, on its thread.
  void OnRanks(const std::function<void(ModelState*, bool is_first)>& of);
  Status MakeDrafter(const ModelList& models, const EngineLimits& limits);
  void TakeStates(const BatchPlan& plan);
  void TakeMixedStates(const BatchPlan& plan);
  void ApplyWrites(const BatchPlan& plan);
  // Encodes the pictures of the plan, and lists what they mean for its tokens.
  Status TakePictures(const BatchPlan& plan, ForwardInput* input);
  // The drafts of each row that has a mask and drafts of the drafter, in order.
  std::vector<std::vector<TokenId>> DraftsOfMasked(const BatchPlan& plan) const;
  void GatherTokenIds(const BatchPlan& plan);
  StateSegments ListSegments(const BatchPlan& plan);
  void ListPlaces(const BatchPlan& plan);
  void SamplePlaces(const BatchPlan& plan, float* logits);
  void ListMasks(const BatchPlan& plan, const StepMasks& masks);
  void ListScored(const BatchPlan& plan);
  // Returns a result for each of plan.scored_ids, from the step whose layers ran last.
  std::vector<RowResult> Score(const BatchPlan& plan);
  // Pools the states of the plan's prompts that want a vector. Returns a vector for each span of
  // them that ends its prompt, from the step whose layers ran last.
  std::vector<std::vector<float>> Pool(const BatchPlan& plan);

  // The list and its files, if adapters are loaded later.
  ModelList models_;
  std::optional<ModelFiles> files_;
  const std::vector<std::unique_ptr<Ops>> all_ops_;  // of each rank; outlive what they made, below
  Ops* const ops_;                                   // of the first
  std::unique_ptr<StepState> state_;
  std::vector<std::unique_ptr<ModelState>> others_;  // of the ranks after the first
  std::optional<EncodedInputs> encoded_;             // by the first rank, for all of them
  PictureTokens picture_tokens_;
  WholeTexts whole_texts_;
  std::vector<PlacedEmbeddings> placed_;  // of the step that runs
  DeviceArray<TokenId> token_ids_;        // [max_step_tokens]
  Places places_;
  Scored scored_;
  std::unique_ptr<TokenDrafter> drafter_;  // null: there is none
  PooledPrompts pooled_;
  std::vector<int32_t> pooled_tokens_;
  std::vector<StateSpan> spans_;  // of the step that runs
  uint64_t num_steps_ = 0;
  RankThreads threads_;  // last, because their work uses the members above
};

}  // namespace minisgl::engine
