// Runs one plan from start to end: table writes, forward pass, sampling, the sampled ids into the
// token pool.
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

namespace minisgl {

class StepRunner {
 public:
  // Loads the model for `limits`. `ops` moves in.
  static Result<std::unique_ptr<StepRunner>> Make(const ModelConfig& config,
                                                  const Checkpoint& checkpoint, DType weight_dtype,
                                                  const EngineLimits& limits,
                                                  std::unique_ptr<Ops> ops);

  const EngineLimits& limits() const { return limits_; }

  // May throw std::bad_alloc; the state is then as after a step whose results are lost.
  StepResult Run(const BatchPlan& plan);

 private:
  StepRunner() = default;
  void ApplyWrites(const BatchPlan& plan);
  void GatherTokenIds(const BatchPlan& plan);
  void SampleRows(const BatchPlan& plan, const std::vector<int32_t>& rows, float* logits,
                  StepResult* result);
  int32_t* PageTableRow(int32_t table_row);
  TokenId* TokenPoolRow(int32_t table_row);

  EngineLimits limits_;
  int64_t pages_per_row_ = 0;
  std::unique_ptr<Ops> ops_;  // outlives what it made, below
  std::unique_ptr<Decoder> decoder_;
  KvStorage kv_;
  // Zero until written, and so untouched: rows nobody uses cost no memory.
  DeviceArray<int32_t> page_table_;  // [max_running_requests + 1, pages_per_row_]
  DeviceArray<TokenId> token_pool_;  // [max_running_requests + 1, max_seq_len]
  DeviceArray<TokenId> token_ids_;   // [max_step_tokens]
};

}  // namespace minisgl
