// See host_experts.h.
#include "model/host_experts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/tensor/dtype.h"
#include "model/experts.h"

namespace minisgl::model {
namespace {

int64_t PieceTokens(const DecoderOptions& options) {
  return std::min(options.max_step_tokens, kHostExpertTokens);
}

int64_t WidthOf(const ModelConfig& config) {
  return config.experts.latent_size > 0 ? config.experts.latent_size : config.hidden_size;
}

void ToFloats(ConstActivationPtr from, int64_t count, float* to) {
  const auto* const bits = from.as<uint16_t>();
  switch (from.dtype) {
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) to[i] = Bf16ToFloat(bits[i]);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) to[i] = F16ToFloat(bits[i]);
      return;
    default:
      std::memcpy(to, from.data, static_cast<size_t>(count) * sizeof(float));
  }
}

void FromFloats(const float* from, int64_t count, ActivationPtr to) {
  auto* const bits = to.as<uint16_t>();
  switch (to.dtype) {
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) bits[i] = FloatToBf16(from[i]);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) bits[i] = FloatToF16(from[i]);
      return;
    default:
      std::memcpy(to.data, from, static_cast<size_t>(count) * sizeof(float));
  }
}

}  // namespace

class HostExperts::LayerOfHost final : public HostExpertLayer {
 public:
  LayerOfHost(const HostExperts* experts, ExpertWeights weights)
      : experts_(experts), weights_(std::move(weights)) {}

  void Run(const HostExpertRows& rows) override {
    const int64_t chosen = experts_->config_.experts.num_chosen;
    for (int64_t first = 0; first < rows.num_tokens; first += experts_->piece_tokens_) {
      experts_->RunPiece(
          weights_, {.x = rows.x.At(first * experts_->width_),
                     .experts = rows.experts + first * chosen,
                     .shares = rows.shares + first * chosen,
                     .out = rows.out.At(first * experts_->width_),
                     .num_tokens = std::min(experts_->piece_tokens_, rows.num_tokens - first)});
    }
  }

 private:
  const HostExperts* const experts_;
  const ExpertWeights weights_;
};

Result<std::unique_ptr<HostExperts>> HostExperts::Make(const ModelConfig& config,
                                                       const DecoderOptions& options,
                                                       std::vector<ExpertWeights> layers) {
  if (options.num_host_layers == 0) return std::unique_ptr<HostExperts>();
  std::unique_ptr<HostExperts> made(new HostExperts(config, options.host_ops));
  made->width_ = WidthOf(config);
  made->piece_tokens_ = PieceTokens(options);
  MINISGL_ASSIGN_OR_RETURN(made->space_,
                           MakeExpertSpace(config, made->piece_tokens_, options.host_ops));
  MINISGL_ASSIGN_OR_RETURN(
      made->x_,
      DeviceArray<float>::Make(options.host_ops, {static_cast<uint64_t>(made->piece_tokens_),
                                                  static_cast<uint64_t>(made->width_)}));
  for (ExpertWeights& weights : layers) {
    const bool is_on_host = weights.gate_up.num_experts > 0;
    made->layers_.push_back(
        is_on_host ? std::make_unique<LayerOfHost>(made.get(), std::move(weights)) : nullptr);
  }
  return made;
}

void HostExperts::RunPiece(const ExpertWeights& weights, const HostExpertRows& rows) const {
  const ExpertsConfig& experts = config_.experts;
  const auto num_choices = static_cast<size_t>(rows.num_tokens * experts.num_chosen);
  ToFloats(rows.x, rows.num_tokens * width_, x_.data());
  std::memcpy(space_.experts.data(), rows.experts, num_choices * sizeof(int32_t));
  std::memcpy(space_.shares.data(), rows.shares, num_choices * sizeof(float));
  RunExperts(config_, weights, space_, x_.data(), rows.num_tokens, ops_);
  // The sum takes the place of the input.
  ops_->CombineExperts({.x = space_.expert_out.ptr(),
                        .shares = (experts.scales_input ? space_.ones : space_.shares).data(),
                        .shared = nullptr,
                        .shared_gate = nullptr,
                        .out = x_.data(),
                        .num_tokens = rows.num_tokens,
                        .width = width_,
                        .num_chosen = experts.num_chosen});
  FromFloats(x_.data(), rows.num_tokens * width_, rows.out);
}

}  // namespace minisgl::model

namespace minisgl {

int32_t CountExpertLayers(const ModelConfig& config) {
  return static_cast<int32_t>(std::count_if(
      config.layers.begin(), config.layers.end(),
      [](const LayerConfig& layer) { return layer.has_experts && layer.has_feed_forward; }));
}

std::vector<bool> HostExpertLayers(const ModelConfig& config, int32_t num_host_layers) {
  std::vector<bool> on_host(config.layers.size());
  int32_t left = num_host_layers;
  for (size_t i = config.layers.size(); i-- > 0 && left > 0;) {
    if (!config.layers[i].has_experts || !config.layers[i].has_feed_forward) continue;
    on_host[i] = true;
    --left;
  }
  return on_host;
}

std::optional<uint64_t> CountHostExpertWeights(const ModelConfig& config,
                                               const DecoderOptions& options) {
  return model::HostExpertBytes(config, options.host_format, options.rank, options.num_host_layers,
                                options.packs_6_bits);
}

std::optional<uint64_t> CountHostExpertWorkspace(const ModelConfig& config,
                                                 const DecoderOptions& options) {
  if (options.num_host_layers == 0) return 0;
  const int64_t tokens = model::PieceTokens(options);
  const auto space = model::ExpertSpaceBytes(RankConfig(config, options.rank), tokens);
  const uint64_t factors[] = {static_cast<uint64_t>(tokens),
                              static_cast<uint64_t>(model::WidthOf(config)), sizeof(float)};
  const auto x = CheckedProduct(factors);
  return space && x ? CheckedAdd(*space, *x) : std::nullopt;
}

}  // namespace minisgl
