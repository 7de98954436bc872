// What one rank of an engine keeps between steps: its part of the model, of keys and values, and of
// states, in the memory of its Ops. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kv_storage.h"
#include "engine/state_storage.h"
#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"

namespace minisgl::engine {

class ModelState {
 public:
  // Loads the part of `rank` of the model `config`, and takes the states, but neither keys nor
  // values. `ops` must outlive it.
  static Result<std::unique_ptr<ModelState>> Make(const ModelConfig& config,
                                                  const Checkpoint& checkpoint,
                                                  const WeightFormat& weight_format,
                                                  const EngineLimits& limits, const Rank& rank,
                                                  Ops* ops);
  // Frees keys and values, if any, and takes those of so many pages and window pages (0 if all
  // layers share pages), with the dummies.
  Status TakePages(int32_t num_pages, int32_t num_window_pages);

  // Changes with TakePages.
  const KvStorage& kv() const { return kv_; }
  const StateStorage& states() const { return states_; }
  const Ops& ops() const { return *ops_; }

  // The functions of Decoder for `input`, whose tables, keys and values are filled in here.
  void RunLayers(ForwardInput input, const StepTables& tables);
  float* Logits(const ForwardInput& input) { return decoder_->Logits(input); }

 private:
  ModelState(ModelConfig config, int32_t page_size, Ops* ops)
      : config_(std::move(config)), page_size_(page_size), ops_(ops) {}

  const ModelConfig config_;  // of the rank
  const int32_t page_size_;
  Ops* const ops_;
  DType kv_dtype_ = DType::kF32;
  std::unique_ptr<Decoder> decoder_;
  KvStorage kv_;
  StateStorage states_;
};

}  // namespace minisgl::engine
