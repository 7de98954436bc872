// See minisgl/model/tower.h.
#include "minisgl/model/tower.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/vision/image_content.h"
#include "model/tower_layout.h"
#include "model/tower_weights.h"
#include "model/tower_workspace.h"

namespace minisgl {
namespace model {
namespace {

// Rows that the workspace has room for, unless a tile has more: a picture of 896 x 896 pixels in
// patches of 14, or 1,024 x 1,024 in patches of 16. A larger picture takes more memory while it is
// encoded.
constexpr int64_t kWorkspaceRows = 4096;

int64_t WorkspaceRows(const TowerConfig& config) {
  const int64_t tile = int64_t{config.tile_side} * config.tile_side + 1;
  return std::max(config.tile_side == 0 ? kWorkspaceRows : tile, kWorkspaceRows);
}

// The widest vector that a step normalises; 0: none does.
int64_t WidestNorm(const TowerConfig& config, const std::vector<TowerStep>& steps) {
  int64_t width = config.hidden_size, widest = 0;
  for (const TowerStep& step : steps) {
    if (step.kind == TowerStepKind::kJoin) width *= config.unit_patches();
    if (step.kind == TowerStepKind::kLinear) width = step.width;
    const bool is_norm = step.kind == TowerStepKind::kNorm || step.kind == TowerStepKind::kScale;
    if (is_norm) widest = std::max(widest, width);
  }
  return widest;
}

// Upper bound on the segments of attention in so many rows.
int64_t SegmentsMax(const TowerConfig& config, int64_t rows) {
  if (config.tile_side > 0) return rows / (int64_t{config.tile_side} * config.tile_side) + 1;
  const int64_t units = rows / config.unit_patches(), side = config.window_units;
  // A picture of a x b units has a b / side^2 whole windows and those of its borders.
  return side == 0 ? 1 : units / (side * side) + (units + 1) / side + 1;
}

// `values` once for each tile.
template <typename T>
Status UploadForTiles(const std::vector<T>& values, int64_t num_tiles, Ops* ops, T* to) {
  for (int64_t t = 0; t < num_tiles; ++t) {
    MINISGL_RETURN_IF_ERROR(
        ops->Upload(to + t * std::ssize(values), values.data(), values.size() * sizeof(T)));
  }
  return Status();
}

// Likewise, each tile's `step` more than the one's before it.
Status UploadIndices(const std::vector<int32_t>& values, int64_t num_tiles, int64_t step, Ops* ops,
                     int32_t* to) {
  std::vector<int32_t> all;
  for (int64_t t = 0; t < num_tiles; ++t) {
    for (const int32_t value : values) all.push_back(value + static_cast<int32_t>(t * step));
  }
  return UploadForTiles(all, 1, ops, to);
}

// The ends of all tiles' segments, which are [begin, ...] in one tile.
std::vector<int32_t> SegmentsOfTiles(const std::vector<int32_t>& of_tile, int64_t num_tiles,
                                     int64_t num_rows) {
  std::vector<int32_t> all = {0};
  for (int64_t t = 0; t < num_tiles; ++t) {
    for (size_t i = 1; i < of_tile.size(); ++i) {
      all.push_back(of_tile[i] + static_cast<int32_t>(t * num_rows));
    }
  }
  return all;
}

// Memory that is declared before it is freed after the operations that use it.
class FinishAtEnd {
 public:
  explicit FinishAtEnd(Ops* ops) : ops_(ops) {}
  FinishAtEnd(const FinishAtEnd&) = delete;
  FinishAtEnd& operator=(const FinishAtEnd&) = delete;
  ~FinishAtEnd() { static_cast<void>(ops_->Finish()); }  // a device keeps its fault

 private:
  Ops* const ops_;
};

// What a picture is encoded with: all of it outlives the encoding.
struct TowerParts {
  const TowerConfig& config;
  const TowerWeights& weights;
  const TowerWorkspace& space;
  Ops* ops;

  int64_t embedding_width() const {
    return int64_t{config.text_hidden_size} * (1 + config.num_deepstack);
  }
};

// A picture's way through a tower in units of work: of each group of tiles that are encoded
// together the patches, the two parts of each layer, and the steps behind the layers.
class ImageEncoding final : public TowerEncoding {
 public:
  ImageEncoding(const TowerParts& tower, const PreparedImage& image, float* out)
      : config_(tower.config),
        weights_(tower.weights),
        own_space_(tower.space),
        ops_(tower.ops),
        width_(tower.embedding_width()),
        image_(image),
        out_(out) {}

  // kBadInput and kOutOfMemory, of Tower::Begin.
  Status Begin();
  Status Advance(int64_t done, int64_t parts) override;

 private:
  Status UploadTables(const TowerRun& run);
  void BeginTiles(int64_t first_tile);
  Status RunUnit(int64_t unit);
  Status RunUnits(int64_t end);
  void RunDeepstack(int32_t layer, float* out);
  Status PackTiles();
  int64_t units_of_tiles() const { return 2 * int64_t{config_.num_layers} + 2; }

  const TowerConfig& config_;
  const TowerWeights& weights_;
  const TowerWorkspace& own_space_;
  Ops* const ops_;
  const int64_t width_;
  const PreparedImage& image_;
  float* const out_;
  TowerLayout layout_;
  TowerWorkspace larger_;     // for more rows than the tower's own has
  DeviceArray<float> tiles_;  // embeddings before they are packed, and the newline's
  int64_t together_ = 0;      // tiles
  int64_t num_units_ = 0, units_done_ = 0;
  std::optional<TowerRun> run_;
  std::optional<FinishAtEnd> finish_;  // of the memory above
};

class TowerImpl final : public Tower {
 public:
  TowerImpl(TowerConfig config, TowerWeights weights, TowerWorkspace space, uint64_t weight_bytes,
            Ops* ops)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        space_(std::move(space)),
        weight_bytes_(weight_bytes),
        ops_(ops) {}

  uint64_t weight_bytes() const override { return weight_bytes_; }
  uint64_t workspace_bytes() const override {
    return CountTowerWorkspace(config_, space_.max_rows, space_.dtype).value_or(0);
  }
  int64_t embedding_width() const override { return parts().embedding_width(); }

  Result<std::unique_ptr<TowerEncoding>> Begin(const EncoderContent& content, float* out) override {
    const auto* const image = dynamic_cast<const ImageContent*>(&content);
    MINISGL_CHECK(image != nullptr, "a tower of pictures reads pictures");
    auto encoding = std::make_unique<ImageEncoding>(parts(), image->image, out);
    MINISGL_RETURN_IF_ERROR(encoding->Begin());
    return std::unique_ptr<TowerEncoding>(std::move(encoding));
  }

 private:
  TowerParts parts() const { return {config_, weights_, space_, ops_}; }

  const TowerConfig config_;
  const TowerWeights weights_;
  const TowerWorkspace space_;
  const uint64_t weight_bytes_;
  Ops* const ops_;
};

// The status of `run`, or that no memory was left to encode `image`.
template <typename Run>
Status WithMemory(const PreparedImage& image, const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kOutOfMemory,
                      "no memory to encode a picture of {} values; use smaller pictures",
                      image.values.size());
  }
}

Status ImageEncoding::Begin() {
  return WithMemory(image_, [this]() -> Status {
    MINISGL_ASSIGN_OR_RETURN(layout_, LayOutTower(config_, image_.layout));
    MINISGL_CHECK(std::ssize(image_.values) == image_.layout.num_values, "{} values of {}",
                  image_.values.size(), image_.layout.num_values);
    const bool fits = layout_.num_rows <= own_space_.max_rows;
    if (!fits) {
      MINISGL_ASSIGN_OR_RETURN(larger_, MakeTowerWorkspace(config_, layout_.num_rows, ops_));
    }
    const TowerWorkspace& space = fits ? own_space_ : larger_;
    together_ = std::min(layout_.num_tiles, space.max_rows / layout_.num_rows);
    num_units_ = CeilDiv(layout_.num_tiles, together_) * units_of_tiles();
    if (config_.packs_tiles) {
      const auto rows = static_cast<uint64_t>(layout_.num_tiles * layout_.num_units + 1);
      MINISGL_ASSIGN_OR_RETURN(
          tiles_, DeviceArray<float>::Make(ops_, {rows, static_cast<uint64_t>(width_)}));
    }
    if (!fits || config_.packs_tiles) finish_.emplace(ops_);
    run_.emplace(TowerRun{config_, weights_, layout_, space, ops_, together_, {}, {}});
    return UploadTables(*run_);
  });
}

Status ImageEncoding::Advance(int64_t done, int64_t parts) {
  const int64_t share = std::max(num_units_ * done / parts, units_done_ + 1);
  const int64_t end = done == parts ? num_units_ : std::min(share, num_units_);
  return WithMemory(image_, [&] { return RunUnits(end); });
}

Status ImageEncoding::RunUnits(int64_t end) {
  for (; units_done_ < end; ++units_done_) MINISGL_RETURN_IF_ERROR(RunUnit(units_done_));
  return Status();
}

void ImageEncoding::BeginTiles(int64_t first_tile) {
  TowerRun& run = *run_;
  run.num_tiles = std::min(together_, layout_.num_tiles - first_tile);
  const std::vector<int32_t> whole = {0, static_cast<int32_t>(layout_.num_rows)};
  run.tile_begin = SegmentsOfTiles(whole, run.num_tiles, layout_.num_rows);
  run.window_begin.clear();
  if (!layout_.window_begin.empty()) {
    run.window_begin = SegmentsOfTiles(layout_.window_begin, run.num_tiles, layout_.num_rows);
  }
}

Status ImageEncoding::RunUnit(int64_t unit) {
  const int64_t first_tile = unit / units_of_tiles() * together_, at = unit % units_of_tiles();
  const int64_t tile_values = image_.layout.num_values / layout_.num_tiles;
  float* const encoded = config_.packs_tiles ? tiles_.data() : out_;
  float* const out = encoded + first_tile * layout_.num_units * width_;
  if (at == 0) {
    BeginTiles(first_tile);
    return EmbedPatches(*run_, image_.values.data() + first_tile * tile_values);
  }
  const auto layer = static_cast<int32_t>((at - 1) / 2);
  if (layer == config_.num_layers) {
    RunTowerSteps(*run_, config_.steps, weights_.steps, /*is_last=*/true, out, width_);
    const bool is_end = unit == num_units_ - 1;
    return is_end && config_.packs_tiles ? PackTiles() : Status();
  }
  if (at % 2 == 1) {
    RunTowerAttention(*run_, layer);
  } else {
    RunTowerFeedForward(*run_, layer);
    RunDeepstack(layer, out);
  }
  return Status();
}

void ImageEncoding::RunDeepstack(int32_t layer, float* out) {
  for (size_t i = 0; i < config_.deepstack_layers.size(); ++i) {
    if (config_.deepstack_layers[i] != layer) continue;
    float* const to = out + config_.text_hidden_size * static_cast<int64_t>(i + 1);
    RunTowerSteps(*run_, config_.deepstack_steps[i], weights_.deepstack[i], /*is_last=*/false, to,
                  width_);
  }
}

// For as many tiles as are encoded together.
Status ImageEncoding::UploadTables(const TowerRun& run) {
  const TowerWorkspace& space = run.space;
  const int64_t tiles = run.num_tiles;
  const RowMix places = MixPlaces(config_, image_.layout, run.layout);
  MINISGL_RETURN_IF_ERROR(UploadForTiles(places.rows, tiles, ops_, space.place_rows.data()));
  MINISGL_RETURN_IF_ERROR(UploadForTiles(places.shares, tiles, ops_, space.place_shares.data()));
  std::vector<float> cos, sin;
  MakeTowerRotation(config_, run.layout, &cos, &sin);
  MINISGL_RETURN_IF_ERROR(UploadForTiles(cos, tiles, ops_, space.cos.data()));
  MINISGL_RETURN_IF_ERROR(UploadForTiles(sin, tiles, ops_, space.sin.data()));
  if (config_.rotation != TowerRotation::kNone) {
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < run.num_rows(); ++i) positions.push_back(static_cast<int32_t>(i));
    MINISGL_RETURN_IF_ERROR(UploadForTiles(positions, 1, ops_, space.positions.data()));
  }
  if (!run.layout.is_in_unit_order) {
    MINISGL_RETURN_IF_ERROR(UploadIndices(run.layout.unit_rows, tiles, run.layout.num_rows, ops_,
                                          space.unit_rows.data()));
  }
  for (const TowerStep& step : config_.steps) {
    if (step.kind != TowerStepKind::kPool) continue;
    const RowMix pool = MixUnits(tiles * run.layout.num_units, config_.unit_patches(), step.factor);
    MINISGL_RETURN_IF_ERROR(UploadForTiles(pool.rows, 1, ops_, space.pool_rows.data()));
    MINISGL_RETURN_IF_ERROR(UploadForTiles(pool.shares, 1, ops_, space.pool_shares.data()));
  }
  return Status();
}

Status ImageEncoding::PackTiles() {
  const int64_t width = config_.text_hidden_size;
  const int64_t num_rows = layout_.num_units * layout_.num_tiles;
  NormParams copy = {.x = weights_.newline.data(),
                     .residual = nullptr,
                     .weight = nullptr,
                     .out = tiles_.data() + num_rows * width,
                     .num_tokens = 1,
                     .width = width,
                     .eps = 0};
  ops_->Norm(copy);
  const RowMix mix = MixPackedTiles(image_.layout, layout_);
  MINISGL_ASSIGN_OR_RETURN(const auto rows, minisgl::Upload<int32_t>(ops_, mix.rows));
  MINISGL_ASSIGN_OR_RETURN(const auto shares, minisgl::Upload<float>(ops_, mix.shares));
  const FinishAtEnd finish(ops_);
  ops_->MixRows({.x = tiles_.data(),
                 .rows = rows.data(),
                 .shares = shares.data(),
                 .out = out_,
                 .num_rows = image_.layout.num_tokens,
                 .width = width,
                 .num_per_row = mix.num_per_row});
  return Status();
}

class TowerModel final : public ListedModel {
 public:
  TowerModel(TowerConfig config, std::string dir)
      : config_(std::move(config)), dir_(std::move(dir)) {}

  ModelRole role() const override { return ModelRole::kTower; }
  const std::string& name() const override { return config_.name; }
  const std::string& dir() const override { return dir_; }

  // Dense: published quantized models have towers in their plain type, too, since a small tower
  // loses more than it saves.
  WeightFormat FormatFor(std::optional<DType> dtype, Quantization) const override {
    return dtype.value_or(config_.dtype);
  }

  bool is_cut() const override { return false; }
  Status CheckDivides(int32_t) const override { return Status(); }

  std::optional<uint64_t> WeightBytes(const DecoderOptions& options) const override {
    return CountTowerWeights(config_, options.weight_format);
  }
  std::optional<uint64_t> WorkspaceBytes(const DecoderOptions& options) const override {
    return CountTowerWorkspace(config_, WorkspaceRows(config_), options.activation_dtype);
  }
  std::optional<uint64_t> ScratchBytes(const DecoderOptions& options,
                                       int num_threads) const override;

  const ModelConfig* layers() const override { return nullptr; }
  int64_t embedding_width() const override {
    return int64_t{config_.text_hidden_size} * (1 + config_.num_deepstack);
  }
  ModelShape tower_shape() const override {
    ModelShape shape;
    shape.tower_head_dim = config_.head_dim;
    shape.tower_norm_width = std::max(config_.hidden_size, config_.attention_width());
    for (const auto& steps : config_.deepstack_steps) {
      shape.tower_norm_width = std::max(shape.tower_norm_width, WidestNorm(config_, steps));
    }
    shape.tower_norm_width = std::max(shape.tower_norm_width, WidestNorm(config_, config_.steps));
    return shape;
  }
  std::string PackKey(const WeightFormat& format) const override {
    return fmt::format("tower {} {} {} {} {} {} {}", config_.name, format.Name(),
                       DTypeName(format.dtype), config_.num_heads, config_.head_dim,
                       static_cast<int>(config_.rotation), config_.unit_side);
  }

  Result<std::unique_ptr<RankModel>> Load(const Checkpoint& checkpoint,
                                          const DecoderOptions& options, const Decoder*,
                                          Ops* ops) const override;

 private:
  const TowerConfig config_;
  const std::string dir_;
};

std::optional<uint64_t> TowerModel::ScratchBytes(const DecoderOptions& options,
                                                 int num_threads) const {
  const int64_t rows = WorkspaceRows(config_);
  int64_t widest =
      std::max({config_.patch_values(), config_.hidden_size, config_.intermediate_size,
                config_.attention_width(), config_.hidden_size * config_.unit_patches()});
  for (const TowerStep& step : config_.steps) widest = std::max(widest, step.width);
  const auto products = CpuScratchBytes({.num_threads = num_threads,
                                         .weight_format = options.weight_format,
                                         .max_tokens = rows,
                                         .max_inputs = widest,
                                         .num_heads = 1,
                                         .num_kv_heads = 1,
                                         .head_dim = 1});
  const auto attention = CpuSegmentAttentionBytes(num_threads, rows, SegmentsMax(config_, rows),
                                                  config_.num_heads, config_.head_dim);
  return products && attention ? CheckedAdd(*products, *attention) : std::nullopt;
}

Result<std::unique_ptr<RankModel>> TowerModel::Load(const Checkpoint& checkpoint,
                                                    const DecoderOptions& options, const Decoder*,
                                                    Ops* ops) const {
  const WeightFormat& format = options.weight_format;
  MINISGL_ASSIGN_OR_RETURN(TowerWeights weights,
                           LoadTowerWeights(config_, checkpoint, format, ops));
  MINISGL_ASSIGN_OR_RETURN(TowerWorkspace space,
                           MakeTowerWorkspace(config_, WorkspaceRows(config_), ops));
  const uint64_t bytes = CountTowerWeights(config_, format).value_or(0);
  return std::unique_ptr<RankModel>(
      std::make_unique<TowerImpl>(config_, std::move(weights), std::move(space), bytes, ops));
}

}  // namespace
}  // namespace model

Status CheckTowerTensors(const TowerConfig& config, const Checkpoint& checkpoint) {
  return model::CheckTowerWeights(config, checkpoint);
}

Status Tower::Encode(const EncoderContent& content, float* out) {
  MINISGL_ASSIGN_OR_RETURN(const auto encoding, Begin(content, out));
  return encoding->Advance(1, 1);
}

std::shared_ptr<const ListedModel> MakeTowerModel(TowerConfig config, std::string dir) {
  return std::make_shared<model::TowerModel>(std::move(config), std::move(dir));
}

}  // namespace minisgl
