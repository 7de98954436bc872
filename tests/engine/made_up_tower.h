// A tower whose embeddings are those of token ids of the target, or random.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/model/model_list.h"
#include "minisgl/model/tower.h"
#include "minisgl/tensor/tensor_view.h"
#include "ops/op_check.h"

namespace minisgl {

// A picture of the made-up tower: its embeddings are those of token ids, or random.
struct MadeUpPicture final : EncoderContent {
  std::vector<TokenId> ids;
  uint64_t seed = 0;  // with no ids
  int32_t count = 0;
};

// A part of the embeddings for each piece: others are written by no other one.
class MadeUpEncoding final : public TowerEncoding {
 public:
  MadeUpEncoding(std::vector<float> embeddings, int64_t width, float* out, int64_t* num_pieces)
      : embeddings_(std::move(embeddings)), width_(width), out_(out), num_pieces_(num_pieces) {}
  Status Advance(int64_t done, int64_t parts) override {
    ++*num_pieces_;
    const int64_t end = std::ssize(embeddings_) / width_ * done / parts * width_;
    std::copy(embeddings_.begin() + done_, embeddings_.begin() + end, out_ + done_);
    done_ = end;
    return Status();
  }

 private:
  const std::vector<float> embeddings_;
  const int64_t width_;
  float* const out_;
  int64_t* const num_pieces_;
  int64_t done_ = 0;
};

// Counts its pieces.
class MadeUpTower final : public Tower {
 public:
  MadeUpTower(std::vector<float> table, int64_t width, int32_t num_deepstack, float scale,
              int64_t* num_pieces)
      : table_(std::move(table)),
        width_(width),
        num_deepstack_(num_deepstack),
        scale_(scale),
        num_pieces_(num_pieces) {}
  uint64_t weight_bytes() const override { return 0; }
  uint64_t workspace_bytes() const override { return 0; }
  int64_t embedding_width() const override { return width_ * (1 + num_deepstack_); }
  Result<std::unique_ptr<TowerEncoding>> Begin(const EncoderContent& content, float* out) override {
    const auto& picture = dynamic_cast<const MadeUpPicture&>(content);
    const int64_t all = embedding_width();
    std::vector<float> values = cpu::RandomFloats(picture.count * all, picture.seed);
    if (!picture.ids.empty()) std::fill(values.begin(), values.end(), 0.0f);
    for (size_t i = 0; i < picture.ids.size(); ++i) {
      const float* const row = table_.data() + picture.ids[i] * width_;
      for (int64_t d = 0; d < width_; ++d) {
        values[i * static_cast<size_t>(all) + static_cast<size_t>(d)] = scale_ * row[d];
      }
    }
    return std::unique_ptr<TowerEncoding>(
        std::make_unique<MadeUpEncoding>(std::move(values), all, out, num_pieces_));
  }

 private:
  const std::vector<float> table_;  // [V, D], of the target
  const int64_t width_;
  const int32_t num_deepstack_;
  const float scale_;
  int64_t* const num_pieces_;
};

// A tower without weights, as one of a list of models.
class TowerWithoutWeights : public ListedModel {
 public:
  // `width`: floats of an embedding.
  explicit TowerWithoutWeights(int64_t width) : width_(width) {}
  ModelRole role() const override { return ModelRole::kTower; }
  const std::string& name() const override { return name_; }
  const std::string& dir() const override { return dir_; }
  WeightFormat FormatFor(std::optional<DType>, Quantization) const override { return DType::kF32; }
  bool is_cut() const override { return false; }
  Status CheckDivides(int32_t) const override { return Status(); }
  std::optional<uint64_t> WeightBytes(const DecoderOptions&) const override { return 0; }
  std::optional<uint64_t> WorkspaceBytes(const DecoderOptions&) const override { return 0; }
  std::optional<uint64_t> ScratchBytes(const DecoderOptions&, int) const override { return 0; }
  const ModelConfig* layers() const override { return nullptr; }
  int64_t embedding_width() const override { return width_; }
  std::string PackKey(const WeightFormat&) const override { return name_; }

 private:
  const int64_t width_;
  const std::string name_ = "MadeUpTower", dir_;
};

class MadeUpTowerModel final : public TowerWithoutWeights {
 public:
  MadeUpTowerModel(const ModelConfig& target, int32_t num_deepstack, int64_t* num_pieces)
      : TowerWithoutWeights(target.hidden_size * (1 + num_deepstack)),
        target_(target),
        num_deepstack_(num_deepstack),
        num_pieces_(num_pieces) {}
  Result<std::unique_ptr<RankModel>> Load(const Checkpoint& checkpoint, const DecoderOptions&,
                                          const Decoder*, Ops*) const override {
    MINISGL_ASSIGN_OR_RETURN(const TensorView table,
                             checkpoint.Get(target_.text_prefix + "embed_tokens.weight"));
    MINISGL_CHECK(table.dtype == DType::kF32, "a table of {}", DTypeName(table.dtype));
    const auto* const floats = reinterpret_cast<const float*>(table.data);
    std::vector<float> values(floats, floats + target_.vocab_size * target_.hidden_size);
    return std::unique_ptr<RankModel>(
        std::make_unique<MadeUpTower>(std::move(values), target_.hidden_size, num_deepstack_,
                                      static_cast<float>(target_.embedding_scale), num_pieces_));
  }

 private:
  const ModelConfig target_;
  const int32_t num_deepstack_;
  int64_t* const num_pieces_;
};

}  // namespace minisgl
