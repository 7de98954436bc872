// What lasts between the steps of an engine, in the memory of its Ops: the decoder, keys and
// values, the page tables and the token pool. The same for the CPU and for a device.
//
// The tables keep their addresses, so captured graphs may hold them. The padding row of a table
// names the dummy page alone. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kv_storage.h"
#include "engine/state_storage.h"
#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"

namespace minisgl::engine {

class StepState {
 public:
  // Loads the model for `limits` and takes the tables, but neither keys nor values. `ops` must
  // outlive the state.
  static Result<std::unique_ptr<StepState>> Make(const ModelConfig& config,
                                                 const Checkpoint& checkpoint,
                                                 const WeightFormat& weight_format,
                                                 const EngineLimits& limits, Ops* ops);
  // Frees keys and values, if any, and takes those of so many pages and window pages (0 if all
  // layers share pages), with the dummies.
  Status TakePages(int32_t num_pages, int32_t num_window_pages);

  // Of Make, with the pages of the last TakePages.
  const EngineLimits& limits() const { return limits_; }
  const ModelConfig& config() const { return config_; }
  // True if layers with a window have pages of their own, also before TakePages.
  bool has_windows() const { return tables_.window_table != nullptr; }
  const StepTables& tables() const { return tables_; }
  // Changes with TakePages.
  const KvStorage& kv() const { return kv_; }
  const StateStorage& states() const { return states_; }

  // The functions of Decoder for `input`, whose tables, keys and values are filled in here.
  void RunLayers(ForwardInput input);
  float* Logits(const ForwardInput& input) { return decoder_->Logits(input); }

 private:
  StepState(const ModelConfig& config, const EngineLimits& limits, Ops* ops)
      : config_(config), limits_(limits), ops_(ops) {}
  Status TakeTables();
  Status FillPaddingRow(int32_t* table, int32_t dummy_page);

  const ModelConfig config_;
  EngineLimits limits_;
  Ops* const ops_;
  DType kv_dtype_ = DType::kF32;
  std::unique_ptr<Decoder> decoder_;
  KvStorage kv_;
  StateStorage states_;
  // On the CPU zeroed when first written: rows that are never used cost no memory.
  DeviceArray<int32_t> page_table_;
  DeviceArray<int32_t> window_table_;
  DeviceArray<TokenId> token_pool_;
  StepTables tables_;  // the three above
};

}  // namespace minisgl::engine
