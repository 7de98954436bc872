// Runs one plan from start to end: table writes, forward pass, sampling, drafts held against
// what was sampled, the sampled ids into the token pool.
//
// Holds everything that lasts between steps: weights, KV storage, page table and token pool. Used
// by one thread.
#pragma once

#include <memory>
#include <vector>

#include "engine/kv_storage.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "model/device_array.h"

namespace minisgl::engine {

class StepRunner {
 public:
  // Loads the model for `limits`. `ops` moves in.
  static Result<std::unique_ptr<StepRunner>> Make(const ModelConfig& config,
                                                  const Checkpoint& checkpoint,
                                                  const WeightFormat& weight_format,
                                                  const EngineLimits& limits,
                                                  std::unique_ptr<Ops> ops);

  const EngineLimits& limits() const { return limits_; }

  // May throw std::bad_alloc; the state is then as after a step whose results are lost.
  StepResult Run(const BatchPlan& plan);

 private:
  // Where a step samples: after the last token of each row that wants one, and before each of its
  // drafts; the places of a row side by side, in position order.
  struct Places {
    std::vector<int32_t> token;  // of the step
    std::vector<const SamplingParams*> sampling;
    std::vector<const TokenId*> history;
    std::vector<int32_t> prompt_len, history_len;
    std::vector<RowResult> results;
    void Clear() {
      token.clear();
      sampling.clear();
      history.clear();
      prompt_len.clear();
      history_len.clear();
      results.clear();
    }
  };

  StepRunner() = default;
  void ApplyWrites(const BatchPlan& plan);
  void GatherTokenIds(const BatchPlan& plan);
  void AddPlaces(const BatchPlan& plan, int row);
  void SamplePlaces(const BatchPlan& plan, float* logits, StepResult* result);
  // `sampled`: a result for each place of the row.
  void AcceptDrafts(const BatchPlan& plan, int row, RowResult* sampled, RowResult* result);
  int32_t* PageTableRow(int32_t table_row);
  TokenId* TokenPoolRow(int32_t table_row);

  EngineLimits limits_;
  int64_t pages_per_row_ = 0;
  std::unique_ptr<Ops> ops_;  // outlives what it made, below
  std::unique_ptr<Decoder> decoder_;
  KvStorage kv_;
  // Zero until written, and so untouched: rows nobody uses cost no memory.
  DeviceArray<int32_t> page_table_;    // [max_running_requests + 1, pages_per_row_]
  DeviceArray<int32_t> window_table_;  // the same by window page, where there are any
  DeviceArray<TokenId> token_pool_;    // [max_running_requests + 1, max_seq_len]
  DeviceArray<TokenId> token_ids_;     // [max_step_tokens]
  Places places_;                      // of the step that runs; kept for its memory
  uint64_t num_steps_ = 0;
};

}  // namespace minisgl::engine
