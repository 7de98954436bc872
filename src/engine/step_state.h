// What lasts between the steps of an engine, in the memory of its Ops: the model with keys and
// values (of several ranks the first one's), the page tables and the token pool. The same for the
// CPU and for a device.
//
// The tables keep their addresses, so captured graphs may hold them. The padding row of a table
// names the dummy page alone. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/model_state.h"
#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/engine.h"
#include "minisgl/ops.h"

namespace minisgl::engine {

class StepState {
 public:
  // Takes the tables for `limits`, but neither keys nor values. `config`: of the target. `ops` must
  // outlive the state.
  static Result<std::unique_ptr<StepState>> Make(const ModelConfig& config,
                                                 std::unique_ptr<ModelState> model,
                                                 const EngineLimits& limits, Ops* ops);
  // Frees keys and values, if any, and takes those of so many pages and window pages (0 if all
  // layers share pages), with the dummies.
  Status TakePages(int32_t num_pages, int32_t num_window_pages);

  // The limits given to Make, with the pages of the last TakePages.
  const EngineLimits& limits() const { return limits_; }
  const ModelConfig& config() const { return config_; }
  // True if layers with a window have pages of their own, also before TakePages.
  bool has_windows() const { return tables_.window_table != nullptr; }
  const StepTables& tables() const { return tables_; }
  const ModelState& model() const { return *model_; }
  ModelState& model() { return *model_; }
  // Changes with TakePages.
  const KvStorage& kv() const { return model_->kv(); }
  const StateStorage& states() const { return model_->states(); }

  // The functions of Decoder for `input`, whose tables, keys and values are filled in here.
  void RunLayers(const ForwardInput& input) { model_->RunLayers(input, tables_); }
  float* Logits(const ForwardInput& input) { return model_->Logits(input); }
  ConstActivationPtr States(const ForwardInput& input) { return model_->States(input); }

 private:
  StepState(const ModelConfig& config, std::unique_ptr<ModelState> model,
            const EngineLimits& limits, Ops* ops)
      : config_(config), limits_(limits), ops_(ops), model_(std::move(model)) {}
  Status TakeTables();
  Status FillPaddingRow(int32_t* table, int32_t dummy_page);

  const ModelConfig config_;
  EngineLimits limits_;
  Ops* const ops_;
  const std::unique_ptr<ModelState> model_;
  // On the CPU zeroed when first written: rows that are never used cost no memory.
  DeviceArray<int32_t> page_table_;
  DeviceArray<int32_t> window_table_;
  DeviceArray<TokenId> token_pool_;
  StepTables tables_;  // the three above
};

}  // namespace minisgl::engine
