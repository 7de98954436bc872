// The models that an engine loads: the target, whose tokens are the answers, and models beside it.
// A drafter proposes tokens that the target verifies: layers for multi-token prediction, a head
// over hidden states, a small model. A tower turns pictures into embeddings.
//
// Loading, the memory plan, ranks and reports go through this list, and know of a model what
// ListedModel says:
// - Weights and workspace are the model's own. A drafter may read the target's embedding and output
//   head (Decoder::tables) and then counts none.
// - Its layers own a share of every page of keys and values, or none. The bytes of a page are the
//   sum over the list, so whatever gives out, shares, keeps or copies a page does so for all models
//   at once. Window pages hold layers of the target alone: another model's layers have all their
//   keys in pages. A model that keeps keys elsewhere counts them in its workspace.
// - Slots of states hold states of the target alone.
// - Several ranks cut it as ranks.h says, or each rank has all of it.
// - Steps: the target runs in every step. A tower runs before a step whose plan has pictures to
//   encode, on the first rank alone. On the CPU a drafter runs before a step for the drafts that
//   the plan wants made, and after it over the step's tokens; no engine of a device runs one.
//
// Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/ranks.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

enum class ModelRole : uint8_t { kTarget, kDrafter, kTower };
// "target", "drafter", "tower".
const char* ModelRoleName(ModelRole role);

// A model of the list. Counts follow from its configuration alone, with no file open; nullopt if
// they are 2^64 or more. The options say what the longest step has, and the rank that counts or
// loads: RankOf of the engine's.
class ListedModel {
 public:
  virtual ~ListedModel() = default;

  virtual ModelRole role() const = 0;
  // The name of its architecture.
  virtual const std::string& name() const = 0;
  // The model directory or GGUF file with its weights; "": the target's files have them.
  virtual const std::string& dir() const = 0;
  // "drafter NAME", as errors name it.
  std::string Title() const;

  // The format of its weights on the CPU if `dtype` (unset: as stored) and `quantization` are asked
  // for. A device holds weights in its activation dtype.
  virtual WeightFormat FormatFor(std::optional<DType> dtype, Quantization quantization) const = 0;

  // False: each rank has all of the model, which is small or has nothing to divide.
  virtual bool is_cut() const = 0;
  Rank RankOf(const Rank& rank) const { return is_cut() ? rank : Rank(); }
  // The errors of CheckRanks of ranks.h.
  virtual Status CheckDivides(int32_t num_ranks) const = 0;

  virtual std::optional<uint64_t> WeightBytes(const DecoderOptions& options) const = 0;
  virtual std::optional<uint64_t> WorkspaceBytes(const DecoderOptions& options) const = 0;
  // Upper bound on what the CPU's operations take for themselves to run it.
  virtual std::optional<uint64_t> ScratchBytes(const DecoderOptions& options,
                                               int num_threads) const = 0;
  // The configuration of the layers that own a share of each page; null: there are none. Ranks
  // divide it as RankConfig does.
  virtual const ModelConfig* layers() const = 0;

  // Floats of an embedding that a tower makes; 0: the model is none.
  virtual int64_t embedding_width() const { return 0; }

  // What decides whether a device has kernels for a tower; nothing is set if the model is none.
  virtual ModelShape tower_shape() const { return {}; }

  // Whatever of the configuration decides the order or format of packed weights.
  virtual std::string PackKey(const WeightFormat& format) const = 0;

  // Checks and packs the weights of options.rank with `ops`, which must outlive the result.
  // `target`: what the rank has of the target, which also outlives it; null if this is the target.
  // kBadInput, kOutOfMemory.
  virtual Result<std::unique_ptr<RankModel>> Load(const Checkpoint& checkpoint,
                                                  const DecoderOptions& options,
                                                  const Decoder* target, Ops* ops) const = 0;
};

// A model that a Decoder runs: the target, or a drafter, which is a prediction layer
// (ModelConfig::prediction) or a small model.
std::shared_ptr<const ListedModel> MakeDecoderModel(ModelRole role, ModelConfig config,
                                                    std::string dir = "");

// The target first. Copies share the models.
class ModelList {
 public:
  // A target alone. Implicit, because most callers have one model.
  ModelList(ModelConfig target = {});  // NOLINT

  // The tower and the drafter of the list; null: there is none.
  const ListedModel* tower() const { return Of(ModelRole::kTower); }
  const ListedModel* drafter() const { return Of(ModelRole::kDrafter); }
  // DecoderOptions::kept_layers of the target.
  std::vector<int32_t> KeptLayers() const;
  ModelList WithoutTower() const;

  // Adapters of the target, by slot; they fit it (CheckAdapterFits). At most `max_loaded` of them
  // are in memory at once.
  const std::vector<std::shared_ptr<const Adapter>>& adapters() const { return adapters_; }
  void SetAdapters(std::vector<std::shared_ptr<const Adapter>> adapters,
                   int32_t max_loaded = INT32_MAX) {
    adapters_ = std::move(adapters);
    max_adapters_ = max_loaded;
  }
  int32_t max_adapters() const { return max_adapters_; }
  // All are loaded at the start.
  bool loads_all_adapters() const { return std::ssize(adapters_) <= max_adapters_; }

  // The adapter that the target's files get (MergeAdapter), or null.
  const std::shared_ptr<const Adapter>& merged() const { return merged_; }
  void SetMerged(std::shared_ptr<const Adapter> merged) { merged_ = std::move(merged); }

  // Adds a drafter or a tower. kBadInput if there is one already, or if its layers have states.
  Status Add(std::shared_ptr<const ListedModel> model);

  const ModelConfig& target() const { return *models_[0]->layers(); }
  size_t size() const { return models_.size(); }
  bool is_one() const { return size() == 1; }
  const ListedModel& operator[](size_t index) const { return *models_[index]; }
  // The target without the models beside it.
  ModelList Alone() const;

 private:
  const ListedModel* Of(ModelRole role) const;

  std::vector<std::shared_ptr<const ListedModel>> models_;
  std::vector<std::shared_ptr<const Adapter>> adapters_;
  int32_t max_adapters_ = INT32_MAX;
  std::shared_ptr<const Adapter> merged_;
};

// The open files of each model of a list. Copies share them.
class ModelFiles {
 public:
  // Files that hold all models, and outlive this. Implicit, because most lists have one model.
  ModelFiles(const Checkpoint& all);  // NOLINT
  // Opens the files of the target and of each model that has a directory of its own. Errors of
  // Checkpoint::Open, which name the model. Errors of MergeAdapter.
  static Result<ModelFiles> Open(const ModelList& models, const std::string& target_dir);

  // The files of model `index` of the list.
  const Checkpoint& operator[](size_t index) const {
    return *(index < files_.size() ? files_[index] : files_[0]);
  }

 private:
  ModelFiles() = default;
  std::vector<std::shared_ptr<const Checkpoint>> files_;  // of each model, or of all
};

}  // namespace minisgl
