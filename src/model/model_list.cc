// See minisgl/model/model_list.h.
#include "minisgl/model/model_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/adapters.h"

namespace minisgl {
namespace {

// The widest input of a matrix that is applied to every token.
int64_t WidestInput(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  int64_t widest = std::max(
      {config.hidden_size, experts.shared_intermediate_size, int64_t{config.per_layer_width},
       config.states.conv_width, config.states.inner_width(), int64_t{config.latent.query_rank},
       int64_t{config.num_heads} * config.latent.value_dim, experts.latent_size});
  for (const LayerShape& shape : LayerShapes(config)) {
    // heads * value_dim: two 31-bit numbers
    widest =
        std::max({widest, shape.intermediate_size, int64_t{shape.num_heads} * shape.value_dim});
  }
  return widest;
}

class DecoderModel final : public ListedModel {
 public:
  DecoderModel(ModelRole role, ModelConfig config, std::string dir)
      : role_(role), config_(std::move(config)), dir_(std::move(dir)) {}

  ModelRole role() const override { return role_; }
  const std::string& name() const override { return config_.architecture; }
  const std::string& dir() const override { return dir_; }

  WeightFormat FormatFor(std::optional<DType> dtype, Quantization quantization) const override {
    const bool keeps_codes = !config_.quantization.empty() && quantization == Quantization::kNone;
    return {dtype.value_or(config_.dtype), keeps_codes ? Quantization::kStored : quantization};
  }

  bool is_cut() const override { return true; }
  Status CheckDivides(int32_t num_ranks) const override {
    if (config_.prediction == PredictionLayer::kAssistant && num_ranks > 1) {
      return UsageError("an assistant runs on one rank alone");
    }
    return CheckRanks(config_, num_ranks);
  }

  std::optional<uint64_t> WeightBytes(const DecoderOptions& options) const override {
    return CountDecoderWeights(config_, options);
  }
  std::optional<uint64_t> WorkspaceBytes(const DecoderOptions& options) const override {
    return CountDecoderWorkspace(config_, options);
  }
  std::optional<uint64_t> ScratchBytes(const DecoderOptions& options,
                                       int num_threads) const override;

  const ModelConfig* layers() const override { return &config_; }
  std::string PackKey(const WeightFormat& format) const override;

  Result<std::unique_ptr<RankModel>> Load(const Checkpoint& checkpoint, const DecoderOptions& given,
                                          const Decoder* target, Ops* ops) const override {
    DecoderOptions options = given;
    DecoderTables tables;
    if (config_.is_prediction_layer()) {
      tables = target->tables();
      options.tables = &tables;
    }
    MINISGL_ASSIGN_OR_RETURN(auto decoder, Decoder::Load(config_, checkpoint, options, ops));
    return std::unique_ptr<RankModel>(std::move(decoder));
  }

 private:
  const ModelRole role_;
  const ModelConfig config_;
  const std::string dir_;
};

std::optional<uint64_t> DecoderModel::ScratchBytes(const DecoderOptions& options,
                                                   int num_threads) const {
  const ModelConfig own = RankConfig(config_, options.rank);
  const ExpertsConfig& experts = own.experts;
  CpuScratchLimits scratch = {.num_threads = num_threads,
                              .weight_format = options.weight_format,
                              .max_tokens = options.max_step_tokens,
                              .max_logit_rows = options.max_logit_rows,
                              .vocab_size = config_.vocab_size,
                              .max_inputs = WidestInput(own),
                              .num_chosen = experts.num_experts > 0 ? experts.num_chosen : 0,
                              .expert_inputs = experts.intermediate_size,
                              .head_inputs = std::max(own.latent.plain_dim, own.latent.rank)};
  uint64_t most = 0;
  for (const LayerShape& shape : LayerShapes(own)) {
    scratch.num_heads = shape.num_heads;
    scratch.num_kv_heads = shape.num_kv_heads;
    scratch.head_dim = shape.head_dim;
    scratch.value_dim = shape.value_dim;
    const auto bytes = CpuScratchBytes(scratch);
    if (!bytes) return std::nullopt;
    most = std::max(most, *bytes);
  }
  return most;
}

std::string DecoderModel::PackKey(const WeightFormat& format) const {
  std::string ropes;
  for (int32_t i = 0; i < std::ssize(config_.layers); ++i) {
    const LayerConfig& layer = config_.layers[static_cast<size_t>(i)];
    ropes += fmt::format(" {}", layer.rope < 0 ? 0 : config_.ropes[layer.rope].dim);
    if (layer.num_heads == 0 && layer.num_kv_heads == 0 && layer.head_dim == 0) continue;
    const LayerShape shape = LayerShapeOf(config_, i);
    ropes += fmt::format(" {}/{}/{}", shape.num_heads, shape.num_kv_heads, shape.head_dim);
  }
  if (const LatentConfig& latent = config_.latent; latent.rank > 0) {
    ropes += fmt::format(" latent {}/{}/{}/{}", latent.rank, latent.plain_dim, latent.rotary_dim,
                         latent.value_dim);
  }
  return fmt::format("{} {} {} {} {} {} {}{} {}", config_.architecture, format.Name(),
                     DTypeName(format.dtype), config_.num_heads, config_.num_kv_heads,
                     config_.head_dim, config_.rotary_interleaved, ropes,
                     config_.quantization.text);
}

}  // namespace

const char* ModelRoleName(ModelRole role) {
  switch (role) {
    case ModelRole::kTarget:
      return "target";
    case ModelRole::kDrafter:
      return "drafter";
    case ModelRole::kTower:
      break;
  }
  return "tower";
}

std::string ListedModel::Title() const {
  return fmt::format("{} {}", ModelRoleName(role()), Visible(name(), 200));
}

std::shared_ptr<const ListedModel> MakeDecoderModel(ModelRole role, ModelConfig config,
                                                    std::string dir) {
  return std::make_shared<DecoderModel>(role, std::move(config), std::move(dir));
}

ModelList::ModelList(ModelConfig target)
    : models_{MakeDecoderModel(ModelRole::kTarget, std::move(target))} {}

Status ModelList::Add(std::shared_ptr<const ListedModel> model) {
  for (const auto& other : models_) {
    if (other->role() != model->role()) continue;
    return BadInput("{}: there is a {} already, {}", model->Title(), ModelRoleName(model->role()),
                    Visible(other->name(), 200));
  }
  if (model->layers() != nullptr && HasStates(*model->layers())) {
    return BadInput("{}: it has layers with states, which only the target may have",
                    model->Title());
  }
  models_.push_back(std::move(model));
  return Status();
}

const ListedModel* ModelList::Of(ModelRole role) const {
  for (const auto& model : models_) {
    if (model->role() == role) return model.get();
  }
  return nullptr;
}

std::vector<int32_t> ModelList::KeptLayers() const {
  const ListedModel* const head = drafter();
  return head == nullptr ? std::vector<int32_t>() : head->layers()->draft_head.target_layers;
}

ModelList ModelList::WithoutTower() const {
  ModelList list = *this;
  std::erase_if(list.models_, [](const auto& model) { return model->role() == ModelRole::kTower; });
  return list;
}

ModelList ModelList::Alone() const {
  ModelList alone = *this;
  alone.models_.resize(1);
  return alone;
}

ModelFiles::ModelFiles(const Checkpoint& all)
    : files_{std::shared_ptr<const Checkpoint>(std::shared_ptr<void>(), &all)} {}

Result<ModelFiles> ModelFiles::Open(const ModelList& models, const std::string& target_dir) {
  ModelFiles files;
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string& dir = models[i].dir();
    if (i > 0 && dir.empty()) {
      files.files_.push_back(files.files_[0]);
      continue;
    }
    auto opened = Checkpoint::Open(dir.empty() ? target_dir : dir);
    if (!opened.ok()) {
      return i == 0 ? opened.status() : opened.status().WithPrefix("the " + models[i].Title());
    }
    files.files_.push_back(std::move(opened).value());
  }
  if (models.merged() != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(MergedModel merged,
                             MergeAdapter(models.target(), *files.files_[0], models.merged()));
    // A layer that drafts reads the files as they are.
    files.files_[0] = std::move(merged.checkpoint);
  }
  return files;
}

}  // namespace minisgl
