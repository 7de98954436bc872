// What one rank of an engine keeps between steps: its part of each model, of keys and values, and
// of states, in the memory of its Ops. Steps run the target; models beside it are loaded and kept.
// Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/kv_storage.h"
#include "engine/state_storage.h"
#include "engine/step_tables.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/model_list.h"
#include "minisgl/model/tower.h"
#include "minisgl/ops.h"

namespace minisgl::engine {

class ModelState {
 public:
  // Loads the part of `rank` of the models that `plan` is for, and takes the states, but neither
  // keys nor values. `ops` must outlive it. `host_ops`: for experts on the host, if the plan has
  // some there.
  static Result<std::unique_ptr<ModelState>> Make(const ModelList& models, const ModelFiles& files,
                                                  const MemoryPlan& plan, const Rank& rank,
                                                  Ops* ops, std::shared_ptr<Ops> host_ops = {});
  // Frees keys and values, if any, and takes those of so many pages and window pages (0 if all
  // layers share pages), with the dummies.
  Status TakePages(int32_t num_pages, int32_t num_window_pages);

  // Changes with TakePages.
  const KvStorage& kv() const { return kv_; }
  KvKind kv_kind() const { return kv_format_.kind; }
  const StateStorage& states() const { return states_; }
  const Ops& ops() const { return *ops_; }
  const Decoder& target() const { return *decoder_; }
  // Model `index` of the list; not the target, which is index 0, nor a tower on a rank after the
  // first: those read what the first one's made.
  const RankModel& beside(size_t index) const { return *beside_[index - 1]; }
  // Null if there is none.
  Tower* tower() const { return tower_; }
  // Null unless the list has adapters.
  DecoderAdapters* adapters() const { return decoder_->adapters(); }
  // The drafter; null: there is none.
  Decoder* drafter() const { return drafter_; }

  // The functions of Decoder for `input`, whose tables, keys and values are filled in here.
  void RunLayers(ForwardInput input, const StepTables& tables);
  float* Logits(const ForwardInput& input) { return decoder_->Logits(input); }
  ConstActivationPtr States(const ForwardInput& input) { return decoder_->States(input); }
  // Decoder::RunLayers and WriteKeys of the drafter, likewise.
  void RunDrafter(const ForwardInput& input, const StepTables& tables);
  void WriteDrafterKeys(const ForwardInput& input, const StepTables& tables);
  // Decoder::MixTargetStates of the drafter, which is a head, for tokens [first, first + count) of
  // the last pass of the target.
  ConstActivationPtr MixedStates(int64_t first, int64_t count);

 private:
  ModelState(ModelConfig config, int32_t page_size, Ops* ops)
      : config_(std::move(config)), page_size_(page_size), ops_(ops) {}
  ForwardInput OfDrafter(ForwardInput input, const StepTables& tables) const;
  Status LoadAdapters(const ModelList& models, const Checkpoint& checkpoint);
  Status LoadBeside(const ListedModel& model, const Checkpoint& checkpoint,
                    const DecoderOptions& options);

  const ModelConfig config_;  // of the rank
  std::vector<ModelConfig>
      configs_in_pages_;  // likewise, of models beside the target with layers in pages
  const int32_t page_size_;
  Ops* const ops_;
  std::shared_ptr<Ops> host_ops_;  // of experts on the host; null: none are there
  KvFormat kv_format_ = DType::kF32;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::unique_ptr<RankModel>> beside_;  // may read the target's tables
  Tower* tower_ = nullptr;                          // of those
  Decoder* drafter_ = nullptr;                      // likewise
  size_t drafter_layers_ = 0;                       // its index in configs_in_pages_
  KvStorage kv_;
  StateStorage states_;
};

}  // namespace minisgl::engine
