// See minisgl/model/tower.h.
#include "minisgl/model/tower.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
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
    return CountTowerWorkspace(config_, space_.max_rows).value_or(0);
  }
  int64_t embedding_width() const override {
    return int64_t{config_.text_hidden_size} * (1 + config_.num_deepstack);
  }

  Status Encode(const EncoderContent& content, float* out) override {
    const auto* const image = dynamic_cast<const ImageContent*>(&content);
    MINISGL_CHECK(image != nullptr, "a tower of pictures reads pictures");
    try {
      return EncodeImage(image->image, out);
    } catch (const std::bad_alloc&) {
      return MakeStatus(StatusCode::kOutOfMemory,
                        "no memory to encode a picture of {} values; use smaller pictures",
                        image->image.values.size());
    }
  }

 private:
  Status EncodeImage(const PreparedImage& image, float* out);
  Status UploadTables(const ImageLayout& image, const TowerRun& run);
  Status EncodeTiles(const TowerRun& run, const float* values, float* out);
  Status PackTiles(const ImageLayout& image, const TowerLayout& layout,
                   const DeviceArray<float>& tiles, float* out);

  const TowerConfig config_;
  const TowerWeights weights_;
  const TowerWorkspace space_;
  const uint64_t weight_bytes_;
  Ops* const ops_;
};

Status TowerImpl::EncodeImage(const PreparedImage& image, float* out) {
  MINISGL_ASSIGN_OR_RETURN(const TowerLayout layout, LayOutTower(config_, image.layout));
  MINISGL_CHECK(std::ssize(image.values) == image.layout.num_values, "{} values of {}",
                image.values.size(), image.layout.num_values);
  TowerWorkspace larger;
  const bool fits = layout.num_rows <= space_.max_rows;
  if (!fits) {
    MINISGL_ASSIGN_OR_RETURN(larger, MakeTowerWorkspace(config_, layout.num_rows, ops_));
  }
  const TowerWorkspace& space = fits ? space_ : larger;
  const int64_t num_tiles = layout.num_tiles;
  const int64_t together = std::min(num_tiles, space.max_rows / layout.num_rows);
  const int64_t width = embedding_width();
  DeviceArray<float> tiles;  // embeddings before they are packed, and the newline's
  if (config_.packs_tiles) {
    const auto rows = static_cast<uint64_t>(num_tiles * layout.num_units + 1);
    MINISGL_ASSIGN_OR_RETURN(tiles,
                             DeviceArray<float>::Make(ops_, {rows, static_cast<uint64_t>(width)}));
  }
  float* const encoded = config_.packs_tiles ? tiles.data() : out;
  const int64_t tile_values = image.layout.num_values / num_tiles;
  TowerRun run = {config_, weights_, layout, space, ops_, together, {}, {}};
  MINISGL_RETURN_IF_ERROR(UploadTables(image.layout, run));
  for (int64_t tile = 0; tile < num_tiles; tile += together) {
    run.num_tiles = std::min(together, num_tiles - tile);
    const std::vector<int32_t> whole = {0, static_cast<int32_t>(layout.num_rows)};
    run.tile_begin = SegmentsOfTiles(whole, run.num_tiles, layout.num_rows);
    run.window_begin.clear();
    if (!layout.window_begin.empty()) {
      run.window_begin = SegmentsOfTiles(layout.window_begin, run.num_tiles, layout.num_rows);
    }
    MINISGL_RETURN_IF_ERROR(EncodeTiles(run, image.values.data() + tile * tile_values,
                                        encoded + tile * layout.num_units * width));
  }
  return config_.packs_tiles ? PackTiles(image.layout, layout, tiles, out) : Status();
}

// For as many tiles as are encoded together.
Status TowerImpl::UploadTables(const ImageLayout& image, const TowerRun& run) {
  const TowerWorkspace& space = run.space;
  const int64_t tiles = run.num_tiles;
  const RowMix places = MixPlaces(config_, image, run.layout);
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

Status TowerImpl::EncodeTiles(const TowerRun& run, const float* values, float* out) {
  const int64_t width = embedding_width();
  MINISGL_RETURN_IF_ERROR(EmbedPatches(run, values));
  size_t deepstack = 0;
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    RunTowerLayer(run, layer);
    if (deepstack == config_.deepstack_layers.size()) continue;
    if (config_.deepstack_layers[deepstack] != layer) continue;
    float* const to = out + config_.text_hidden_size * static_cast<int64_t>(deepstack + 1);
    RunTowerSteps(run, config_.deepstack_steps[deepstack], weights_.deepstack[deepstack],
                  /*is_last=*/false, to, width);
    ++deepstack;
  }
  RunTowerSteps(run, config_.steps, weights_.steps, /*is_last=*/true, out, width);
  return Status();
}

Status TowerImpl::PackTiles(const ImageLayout& image, const TowerLayout& layout,
                            const DeviceArray<float>& tiles, float* out) {
  const int64_t width = config_.text_hidden_size, num_rows = layout.num_units * layout.num_tiles;
  NormParams copy = {.x = weights_.newline.data(),
                     .residual = nullptr,
                     .weight = nullptr,
                     .out = tiles.data() + num_rows * width,
                     .num_tokens = 1,
                     .width = width,
                     .eps = 0};
  ops_->Norm(copy);
  const RowMix mix = MixPackedTiles(image, layout);
  MINISGL_ASSIGN_OR_RETURN(const auto rows, minisgl::Upload<int32_t>(ops_, mix.rows));
  MINISGL_ASSIGN_OR_RETURN(const auto shares, minisgl::Upload<float>(ops_, mix.shares));
  ops_->MixRows({.x = tiles.data(),
                 .rows = rows.data(),
                 .shares = shares.data(),
                 .out = out,
                 .num_rows = image.num_tokens,
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
  std::optional<uint64_t> WorkspaceBytes(const DecoderOptions&) const override {
    return CountTowerWorkspace(config_, WorkspaceRows(config_));
  }
  std::optional<uint64_t> ScratchBytes(const DecoderOptions& options,
                                       int num_threads) const override;

  const ModelConfig* layers() const override { return nullptr; }
  int64_t embedding_width() const override {
    return int64_t{config_.text_hidden_size} * (1 + config_.num_deepstack);
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
  if (ops->activation_dtype() != DType::kF32) {
    return MakeStatus(StatusCode::kUnavailable, "the {} runs on the CPU alone", Title());
  }
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

std::shared_ptr<const ListedModel> MakeTowerModel(TowerConfig config, std::string dir) {
  return std::make_shared<model::TowerModel>(std::move(config), std::move(dir));
}

}  // namespace minisgl
