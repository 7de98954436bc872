// The transformer over Ops, for every architecture. A block is attention and a feed-forward part,
// with norms placed by ModelConfig. The output of a part is left in `hidden` and added to the
// residual stream by the next norm, so that addition and norm are one pass over memory.
#include "minisgl/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/adapted_products.h"
#include "model/draft_head.h"
#include "model/experts.h"
#include "model/head_norms.h"
#include "model/input_embedding.h"
#include "model/latent_attention.h"
#include "model/layer_fusion.h"
#include "model/model_weights.h"
#include "model/per_layer_embedding.h"
#include "model/picture_tokens.h"
#include "model/rank_cut.h"
#include "model/rank_sums.h"
#include "model/state_mixer.h"
#include "model/stream_norms.h"
#include "model/workspace.h"

namespace minisgl {
namespace {

class OpsDecoder final : public Decoder {
 public:
  // `config`: of the rank.
  OpsDecoder(const ModelConfig& config, const DecoderOptions& options, int64_t first_id,
             std::vector<int64_t> vocabulary_bounds, DecoderBytes bytes,
             model::ModelWeights weights, model::Workspace workspace,
             const model::WholeModel& whole, std::unique_ptr<model::HostExperts> host_experts,
             Ops* ops)
      : config_(config),
        options_(options),
        first_id_(first_id),
        vocabulary_bounds_(std::move(vocabulary_bounds)),
        bytes_(bytes),
        weights_(std::move(weights)),
        space_(std::move(workspace)),
        adapted_(model::MakeAdapters(whole, options, weights_, ops)),
        ops_(adapted_ == nullptr ? ops : adapted_->ops()),
        norms_(config_, space_, ops_),
        sums_(config_, options.rank.count, ops_),
        host_experts_(std::move(host_experts)),
        experts_(config_, space_, host_experts_.get(), ops_),
        head_norms_(config_, shapes_, weights_, space_, options.rank.count, ops_) {
    for (int32_t i = 0; i < config.num_layers; ++i) {
      const auto index = static_cast<size_t>(i);
      shapes_.push_back(LayerShapeOf(config, i));
      fusions_.push_back(model::FusionOf(config, weights_.layers[index], index));
    }
  }

  void RunLayers(const ForwardInput& input) override {
    const int64_t num_tokens = input.num_tokens;
    MINISGL_CHECK(num_tokens <= options_.max_step_tokens, "a step of {} tokens, room for {}",
                  num_tokens, options_.max_step_tokens);
    sums_.Begin();
    experts_.Begin(input.num_real_tokens);
    if (adapted_ != nullptr) adapted_->BeginTokens(input);
    model::EmbedTokens({config_, options_, weights_, space_, norms_, ops_, first_id_}, input,
                       &sums_);
    const ActivationPtr hidden = space_.hidden.ptr();
    const bool adds = !has_ranks() && ops_->AddsInLinear(num_tokens);
    const auto is_kept = [&](size_t layer) {
      return std::ranges::count(options_.kept_layers, static_cast<int32_t>(layer)) > 0;
    };
    ConstActivationPtr pending = nullptr;  // output of the last part, not added yet
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const model::LayerWeights& layer = weights_.layers[i];
      const bool has_mixer = config_.layers[i].mixer != Mixer::kNone;
      const float factor = i == 0 ? 1 : FactorAfter(i - 1);
      const model::LayerFusion& fusion = fusions_[i];
      attention_adds_ = adds && fusion.attention_addition;
      feed_forward_adds_ = adds && fusion.feed_forward_addition;
      if (config_.norm_placement == NormPlacement::kAfterSum) {
        const bool is_again = config_.adds_input_again;
        if (is_again) norms_.NormTo(model::NormWeights(), space_.placed.data(), num_tokens);
        Mix(input, i, hidden);
        norms_.NormSum(layer.attention_post_norm, num_tokens);
        if (is_again)
          norms_.NormStreamAnd(space_.placed.data(), layer.attention_second_norm, num_tokens);
        FeedForward(i, num_tokens);
        norms_.NormSum(layer.feed_forward_post_norm, num_tokens);
        continue;
      }
      if (has_mixer && !(i == 0 && config_.prediction == PredictionLayer::kEagle)) {
        RunOrHold(norms_.AddAndNorm(pending, layer.attention_norm, num_tokens, factor),
                  fusion.attention_norm && !is_kept(i));
      }
      if (is_kept(i)) {
        model::KeepEntering(options_.kept_layers, i, num_tokens, options_.max_step_tokens, config_,
                            space_, norms_);
      }
      if (config_.norm_placement == NormPlacement::kParallel) {
        Mix(input, i, space_.branch.ptr());
        FeedForward(i, num_tokens);
        norms_.Add(space_.branch.ptr(), num_tokens);
        pending = hidden;
      } else {
        if (has_mixer) Mix(input, i, hidden);
        NormOutput(layer.attention_post_norm, num_tokens);
        if (has_mixer) pending = attention_adds_ ? nullptr : ConstActivationPtr(hidden);
        if (config_.layers[i].has_feed_forward) {
          RunOrHold(norms_.AddAndNorm(pending, layer.feed_forward_norm, num_tokens,
                                      has_mixer ? 1 : factor, has_mixer ? MixerScale(i) : 0),
                    fusion.feed_forward_norm);
          FeedForward(i, num_tokens);
          pending = feed_forward_adds_ ? nullptr : ConstActivationPtr(hidden);
        }
        NormOutput(layer.feed_forward_post_norm, num_tokens);
        if (config_.per_layer_width > 0) AddPerLayer(i, num_tokens);
      }
      model::PlaceEmbeddings(config_, space_, input, i + 1, ops_);
    }
    sums_.Settle();
  }

  // Final norm and output head, for the tokens that need logits only: the head is the largest
  // matrix of a small model.
  float* Logits(const ForwardInput& input) override {
    const int64_t num_rows = input.num_logit_tokens;
    if (num_rows == 0) return space_.logits.data();
    MINISGL_CHECK(!config_.is_encoder, "{} rows of logits of an encoder", num_rows);
    const ActivationPtr hidden = NormWanted(input);
    if (adapted_ != nullptr) adapted_->BeginRows(input);
    Linear(hidden, weights_.head, space_.logits.data(), num_rows, nullptr, &weights_.layers[0].qkv);
    if (config_.logit_softcap > 0) {
      ops_->Softcap({.values = space_.logits.data(),
                     .count = num_rows * config_.vocab_size,
                     .cap = static_cast<float>(config_.logit_softcap)});
    }
    return has_ranks() ? GatherLogits(num_rows) : space_.logits.data();
  }

  ConstActivationPtr States(const ForwardInput& input) override {
    MINISGL_CHECK(input.logit_tokens != nullptr, "states of no listed tokens");
    const ActivationPtr normed = NormWanted(input);
    if (config_.prediction == PredictionLayer::kAssistant) {
      Linear(normed, weights_.prediction.output, space_.target_state.ptr(), input.num_logit_tokens);
      return space_.target_state.ptr();
    }
    const bool is_plain =
        config_.prediction == PredictionLayer::kEagle && !config_.draft_head.recycles_norm;
    return is_plain ? norms_.CopyWanted(normed, input.num_logit_tokens) : normed;
  }

  ConstActivationPtr Entering(size_t part) const override {
    const int64_t width = options_.max_step_tokens * config_.hidden_size;
    return space_.entering.ptr().At(static_cast<int64_t>(part) * width);
  }

  ConstActivationPtr MixTargetStates(std::span<const ConstActivationPtr> parts,
                                     int64_t count) override {
    model::MixTargetStates(config_, weights_.prediction, space_, norms_, parts, count, ops_);
    return space_.hidden.ptr();
  }

  const float* ClusterScores(const ForwardInput& input) override {
    Linear(NormWanted(input), weights_.prediction.clusters, space_.cluster_scores.data(),
           input.num_logit_tokens);
    return space_.cluster_scores.data();
  }

  void AddTransitions(const int32_t* ids, int64_t count, float* logits) override {
    model::AddTransitions(config_, weights_.prediction, space_, ids, count, logits, ops_);
  }

  void WriteKeys(const ForwardInput& input) override {
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const model::LayerWeights& layer = weights_.layers[i];
      ops_->Linear({.x = input.states_before,
                    .weight = &layer.qkv,
                    .bias = layer.qkv_bias.data(),
                    .out = space_.qkv.ptr(),
                    .num_tokens = input.num_tokens});
      Rotate(input, i);
    }
  }

  const ModelConfig& config() const override { return config_; }
  DecoderTables tables() const override {
    return {weights_.embedding, weights_.head, first_id_, vocabulary_bounds_};
  }
  DecoderAdapters* adapters() override { return adapted_.get(); }
  uint64_t weight_bytes() const override { return *bytes_.weights; }
  uint64_t workspace_bytes() const override { return *bytes_.workspace; }

 private:
  bool has_ranks() const { return options_.rank.count > 1; }

  // Normalises `hidden` in place, if the architecture has a norm after the part.
  void NormOutput(const model::NormWeights& norm, int64_t num_tokens) {
    if (norm.weight.data() != nullptr) sums_.RunNorm(norms_.OutputNorm(norm, num_tokens));
  }

  // The final norm of the tokens that are wanted.
  ActivationPtr NormWanted(const ForwardInput& input) {
    const int64_t num_rows = input.num_logit_tokens;
    MINISGL_CHECK(num_rows <= options_.max_logit_rows, "{} rows of logits, room for {}", num_rows,
                  options_.max_logit_rows);
    return norms_.NormWanted(weights_.final_norm, input.logit_tokens, num_rows,
                             FactorAfter(weights_.layers.size() - 1));
  }

  // The logits of all ranks; null on a rank that does not gather them.
  float* GatherLogits(int64_t num_rows) {
    ops_->GatherColumns({.x = space_.logits.data(),
                         .out = space_.all_logits.data(),
                         .num_tokens = num_rows,
                         .width = config_.vocab_size,
                         .first = vocabulary_bounds_[static_cast<size_t>(options_.rank.index)],
                         .out_stride = vocabulary_bounds_.back(),
                         .bounds = vocabulary_bounds_.data()});
    return space_.all_logits.data();
  }

  // Factor of the residual stream after layer `index`.
  float FactorAfter(size_t index) const { return weights_.layers[index].factor; }

  // Runs a norm, or leaves it to the next product (Product), unless a sum is owed.
  void RunOrHold(const NormParams& norm, bool holds) {
    if (!holds || sums_.is_owed()) return sums_.RunNorm(norm);
    held_norm_ = norm;
  }

  // Adds the output of the feed-forward part, in `hidden`, to the residual stream, and leaves in
  // `hidden` norm(output(act(gate(stream)) * per_layer)).
  void AddPerLayer(size_t index, int64_t num_tokens) {
    const model::PerLayerWeights& weights = weights_.layers[index].per_layer;
    sums_.RunNorm(norms_.AddAndNorm(space_.hidden.ptr(), model::NormWeights(), num_tokens));
    model::ApplyPerLayer(config_, weights, index, space_, num_tokens, AfterLayer(index), ops_);
    NormOutput(weights.norm, num_tokens);
  }

  // Factor of a mixer's output; 0: residual_scale.
  double MixerScale(size_t index) const {
    const bool is_both = config_.layers[index].mixer == Mixer::kAttentionAndMamba2;
    return is_both ? config_.state_output_factor : 0;
  }

  // A product with the norm that was held for it, if there is one.
  void Product(FusedLinearParams params) {
    const std::optional<NormParams> norm = std::exchange(held_norm_, std::nullopt);
    if (norm) params.norm = &*norm;
    ops_->FusedLinear(params);
  }
  // The residual stream if the product of a part adds to it, or null.
  float* AddsTo(bool adds) const { return adds ? space_.residual.data() : nullptr; }

  // `next`: see LinearParams.
  void Linear(ConstActivationPtr x, const Matrix& weight, ActivationPtr out, int64_t num_tokens,
              const float* bias = nullptr, const Matrix* next = nullptr) {
    ops_->Linear({.x = x,
                  .weight = &weight,
                  .bias = bias,
                  .out = out,
                  .num_tokens = num_tokens,
                  .next = next});
  }

  // The first matrix after attention in layer `index`, and after the layer.
  const Matrix* AfterAttention(size_t index) const {
    const model::LayerWeights& layer = weights_.layers[index];
    const bool experts_first = config_.layers[index].has_experts && !config_.experts.beside_dense;
    return experts_first ? &layer.experts.router : &layer.feed_forward.gate_up;
  }
  // The matrices whose weights may come into a cache while attention runs.
  BehindAttention BehindAttentionOf(size_t index) const {
    const model::LayerWeights& layer = weights_.layers[index];
    const Matrix* const next = AfterAttention(index);
    return {.output = &layer.attention_output,
            .next = next,
            .next_is_gated = next == &layer.feed_forward.gate_up && config_.gated};
  }
  const Matrix* AfterLayer(size_t index) const {
    return index + 1 < weights_.layers.size() ? &weights_.layers[index + 1].qkv : &weights_.head;
  }
  // The first matrix after the feed-forward part.
  const Matrix* AfterFeedForward(size_t index) const {
    return config_.per_layer_width > 0 ? &weights_.layers[index].per_layer.gate : AfterLayer(index);
  }

  // Runs attention, or what the layer has in its place, on `hidden` and writes its output to `out`.
  // Its sum over ranks may be owed.
  void Mix(const ForwardInput& input, size_t index, ActivationPtr out) {
    const Mixer mixer = config_.layers[index].mixer;
    const bool is_both = HasState(mixer) && HasAttention(mixer);
    if (HasAttention(mixer)) Attention(input, index, is_both ? space_.branch.ptr() : out);
    if (HasState(mixer)) {
      model::RunStateMixer(config_, weights_.layers[index].state, space_, input, index,
                           options_.rank.count, out, ops_);
      sums_.Reduce(out, input.num_tokens, /*may_owe=*/!is_both);
    }
    if (is_both) norms_.Add(space_.branch.ptr(), input.num_tokens, config_.attention_output_factor);
  }

  void Attention(const ForwardInput& input, size_t index, ActivationPtr out) {
    const model::LayerWeights& layer = weights_.layers[index];
    const bool is_latent = config_.latent.rank > 0;
    if (is_latent) {
      model::ComputeLatentQueries(config_, layer, space_, input.num_tokens, ops_);
    } else {
      Product({.linear = {.x = space_.hidden.ptr(),
                          .weight = &layer.qkv,
                          .bias = layer.qkv_bias.data(),
                          .out = space_.qkv.ptr(),
                          .num_tokens = input.num_tokens,
                          .next = &layer.attention_output,
                          .behind_attention = BehindAttentionOf(index)}});
    }
    if (layer.state_qkv.num_out > 0) {
      model::AddProductOfStates(layer.state_qkv, space_, input.num_tokens, ops_);
    }
    head_norms_.NormQueriesAndKeys(index, input.num_tokens);
    head_norms_.NormValues(index, input.num_tokens);
    Rotate(input, index);
    Attend(input, index);
    if (config_.attention_gate) GateAttention(index, input.num_tokens);
    ConstActivationPtr values = space_.attention.ptr();
    if (is_latent) values = model::ExpandLatentValues(layer, space_, input.num_tokens, ops_);
    Product({.linear = {.x = values,
                        .weight = &layer.attention_output,
                        .bias = layer.attention_output_bias.data(),
                        .out = out,
                        .num_tokens = input.num_tokens,
                        .next = AfterAttention(index)},
             .residual = AddsTo(attention_adds_),
             .residual_scale = static_cast<float>(config_.residual_scale)});
    sums_.Reduce(out, input.num_tokens, /*may_owe=*/!HasState(config_.layers[index].mixer));
  }

  // Multiplies what attention returned by sigmoid(gate * hidden).
  void GateAttention(size_t index, int64_t num_tokens) {
    const model::LayerWeights& layer = weights_.layers[index];
    const int64_t width = layer.attention_gate.num_out;
    Linear(space_.hidden.ptr(), layer.attention_gate, space_.attention_gate.ptr(), num_tokens,
           layer.attention_gate_bias.data(), &layer.attention_output);
    ops_->Activate({.gate_up = space_.attention_gate.ptr(),
                    .out = space_.attention.ptr(),
                    .num_tokens = num_tokens,
                    .width = width,
                    .activation = Activation::kSigmoid,
                    .gated = false,
                    .up = space_.attention.ptr(),
                    .up_stride = width});
  }

  // True if the layer's KV is in window pages.
  bool UsesWindowPages(const ForwardInput& input, size_t index) const {
    return input.window_page_table != nullptr && config_.layers[index].sliding_window > 0;
  }

  void Rotate(const ForwardInput& input, size_t index) {
    const model::LayerWeights& layer = weights_.layers[index];
    const LayerShape& shape = shapes_[index];
    const int32_t rope = config_.layers[index].rope;
    const bool in_place =
        config_.qk_norm == QkNorm::kHead || config_.qk_norm == QkNorm::kHeadAfterRotary;
    RopeKvWriteParams params = {
        .qkv = space_.qkv.ptr(),
        .positions = input.positions,
        .slots = UsesWindowPages(input, index) ? input.window_slots : input.slots,
        .cos = nullptr,
        .sin = nullptr,
        .kv = input.kv[index],
        .num_tokens = input.num_tokens,
        .num_heads = shape.num_heads,
        .num_kv_heads = head_norms_.OwnKvHeads(index),
        .head_dim = shape.head_dim,
        .rotary_dim = 0,
        .q_norm = in_place ? layer.query_norm.data() : nullptr,
        .k_norm = in_place ? layer.key_norm.data() : nullptr,
        .norm_eps = static_cast<float>(config_.norm_eps),
        .norm_last = config_.qk_norm == QkNorm::kHeadAfterRotary,
        .query_scale =
            config_.query_scale_unrotated && rope >= 0 ? nullptr : space_.query_scales.data(),
        .v_head_dim = shape.value_dim};
    if (rope >= 0) {
      const model::RotaryTable& table = space_.rotary[static_cast<size_t>(rope)];
      params.cos = table.cos.data();
      params.sin = table.sin.data();
      params.rotary_dim = config_.ropes[static_cast<size_t>(rope)].dim;
      model::TurnByMixed(config_, space_, input, rope, &params);
    }
    ops_->RopeKvWrite(params);
  }

  void Attend(const ForwardInput& input, size_t index) {
    const LayerShape& shape = shapes_[index];
    const double scale = config_.attention_scale > 0
                             ? config_.attention_scale
                             : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    ops_->Attention(
        {.qkv = space_.qkv.ptr(),
         .out = space_.attention.ptr(),
         .kv = input.kv[index],
         .page_table = UsesWindowPages(input, index) ? input.window_page_table : input.page_table,
         .page_table_stride = input.page_table_stride,
         .table_row = input.table_row,
         .row_begin = input.row_begin,
         .kv_len = input.kv_len,
         .num_rows = input.num_rows,
         .num_decode_rows = input.num_decode_rows,
         .rows_known = input.rows_known,
         .num_tokens = input.num_tokens,
         .num_heads = shape.num_heads,
         .num_kv_heads = shape.num_kv_heads,
         .head_dim = shape.head_dim,
         .scale = static_cast<float>(scale),
         .sliding_window = config_.layers[index].sliding_window,
         .logit_softcap = static_cast<float>(config_.attention_softcap),
         .sinks = weights_.layers[index].sinks.data(),
         .step = input.step,
         .v_head_dim = shape.value_dim,
         .qkv_stride = head_norms_.TokenWidth(index),
         .key_end = model::KeyEnds(config_, index, input),
         .first_key = input.first_key,
         .distance_bias = weights_.distances.data(),
         .distance_stride = model::DistanceStride(config_),
         .distance_origin = model::DistanceOrigin(config_)});
  }

  // Runs the feed-forward part on `hidden`, in place. The sum of its output over ranks may be owed.
  void FeedForward(size_t index, int64_t num_tokens) {
    const model::LayerWeights& layer = weights_.layers[index];
    const ExpertsConfig& experts = config_.experts;
    if (!config_.layers[index].has_experts || experts.beside_dense) {
      const bool is_alone = !config_.layers[index].has_experts;
      Dense(layer.feed_forward, shapes_[index].intermediate_size, num_tokens,
            is_alone ? AfterFeedForward(index) : &layer.experts.router);
      sums_.Reduce(space_.hidden.ptr(), num_tokens, /*may_owe=*/is_alone);
      if (!is_alone) AddExpertsBeside(index, num_tokens);
      return;
    }
    const ActivationPtr hidden = space_.hidden.ptr();
    model::ChooseExperts(config_, layer.experts, space_, hidden, num_tokens, ops_);
    if (experts.latent_size > 0) return RunLatentExperts(index, num_tokens);
    experts_.Run(index, layer.experts, hidden, num_tokens);
    const bool shared = experts.shared_intermediate_size > 0;
    if (experts.shared_gate) {
      Linear(space_.hidden.ptr(), layer.experts.shared_share, space_.shared_share.data(),
             num_tokens);
    }
    if (shared) {
      Dense(layer.feed_forward, experts.shared_intermediate_size, num_tokens, AfterLayer(index));
    }
    experts_.Combine(index, {.shared = shared ? ConstActivationPtr(hidden) : nullptr,
                             .shared_gate = space_.shared_share.data(),
                             .out = hidden,
                             .num_tokens = num_tokens,
                             .width = config_.hidden_size});
    sums_.Reduce(hidden, num_tokens, /*may_owe=*/true);
  }

  // hidden = output(experts(input(hidden))) + shared(hidden), with the experts already chosen.
  void RunLatentExperts(size_t index, int64_t num_tokens) {
    const model::LayerWeights& layer = weights_.layers[index];
    const ExpertsConfig& experts = config_.experts;
    const ActivationPtr hidden = space_.hidden.ptr(), latent = space_.latent.ptr();
    Linear(hidden, layer.experts.latent_input, latent, num_tokens);
    experts_.Run(index, layer.experts, latent, num_tokens);
    CombineExpertsParams params = {
        .out = latent, .num_tokens = num_tokens, .width = experts.latent_size};
    Dense(layer.feed_forward, experts.shared_intermediate_size, num_tokens, AfterLayer(index));
    experts_.Combine(index, params);
    Linear(latent, layer.experts.latent_output, space_.branch.ptr(), num_tokens);
    // The sum of the two.
    params.x = space_.branch.ptr();
    params.shares = space_.ones.data();
    params.shared = hidden;
    params.out = hidden;
    params.width = config_.hidden_size;
    params.num_chosen = 1;
    ops_->CombineExperts(params);
    sums_.Reduce(hidden, num_tokens, /*may_owe=*/true);
  }

  // Normalises the output of the dense part in `hidden`, and adds that of the experts to it. Both
  // begin from the residual stream.
  void AddExpertsBeside(size_t index, int64_t num_tokens) {
    const model::ExpertWeights& weights = weights_.layers[index].experts;
    const ActivationPtr hidden = space_.hidden.ptr(), branch = space_.branch.ptr();
    NormOutput(weights.dense_post_norm, num_tokens);
    norms_.NormTo(weights.router_norm, branch, num_tokens);
    model::ChooseExperts(config_, weights, space_, branch, num_tokens, ops_);
    norms_.NormTo(weights.expert_norm, branch, num_tokens);
    experts_.Run(index, weights, branch, num_tokens);
    CombineExpertsParams params = {
        .out = branch, .num_tokens = num_tokens, .width = config_.hidden_size};
    experts_.Combine(index, params);
    sums_.Reduce(branch, num_tokens);
    NormParams norm = norms_.Params(weights.expert_post_norm, num_tokens);
    norm.x = branch;
    norm.out = branch;
    ops_->Norm(norm);
    // The sum of the two.
    params.x = branch;
    params.shares = space_.ones.data();
    params.shared = hidden;
    params.out = hidden;
    params.num_chosen = 1;
    ops_->CombineExperts(params);
  }

  // `next`: the first matrix after it.
  void Dense(const model::FeedForwardWeights& weights, int64_t width, int64_t num_tokens,
             const Matrix* next) {
    ActivateParams activation =
        model::MakeActivate(config_, space_.gate_up.ptr(), space_.gated.ptr(), width, num_tokens);
    activation.xielu = weights.xielu;
    Product({.linear = {.x = space_.hidden.ptr(),
                        .weight = &weights.gate_up,
                        .bias = weights.gate_up_bias.data(),
                        .out = space_.gate_up.ptr(),
                        .num_tokens = num_tokens,
                        .next = &weights.down},
             .activation = &activation});
    Product({.linear = {.x = space_.gated.ptr(),
                        .weight = &weights.down,
                        .bias = weights.down_bias.data(),
                        .out = space_.hidden.ptr(),
                        .num_tokens = num_tokens,
                        .next = next},
             .residual = AddsTo(feed_forward_adds_),
             .residual_scale = static_cast<float>(config_.residual_scale)});
  }

  const ModelConfig config_;
  const DecoderOptions options_;
  const int64_t first_id_;                        // of the rank's rows of the embedding
  const std::vector<int64_t> vocabulary_bounds_;  // [ranks + 1] of all ranks' rows of the head
  const DecoderBytes bytes_;
  const model::ModelWeights weights_;
  const model::Workspace space_;
  const std::unique_ptr<model::AdaptedProducts> adapted_;  // null: no row has an adapter
  Ops* const ops_;
  const model::StreamNorms norms_;
  model::RankSums sums_;
  const std::unique_ptr<const model::HostExperts> host_experts_;  // null: none
  model::ExpertSums experts_;
  std::vector<LayerShape> shapes_;  // [layers]
  const model::HeadNorms head_norms_;
  std::vector<model::LayerFusion> fusions_;  // [layers]
  // The norm before the running part's first product, and whether its last product adds.
  std::optional<NormParams> held_norm_;
  bool attention_adds_ = false, feed_forward_adds_ = false;
};

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::Load(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const DecoderOptions& options, Ops* ops) {
  MINISGL_ASSIGN_OR_RETURN(
      model::ModelWeights weights,
      model::LoadModelWeights(config, checkpoint, options.weight_format, ops, options.rank,
                              options.tables, model::HostExpertPackingOf(options)));
  const DecoderBytes bytes = CountDecoderBytes(config, options);
  if (!bytes.weights || !bytes.workspace) {
    return Status(StatusCode::kOutOfMemory, "the model's sizes are past what memory can hold");
  }
  const ModelConfig own = RankConfig(config, options.rank);
  MINISGL_ASSIGN_OR_RETURN(model::Workspace workspace,
                           model::MakeWorkspace(own, options, config.vocab_size, ops));
  MINISGL_ASSIGN_OR_RETURN(auto host,
                           model::HostExperts::Make(own, options, std::move(weights.host_experts)));
  const auto index = static_cast<size_t>(options.rank.index);
  const auto bounds_of = [&](int64_t rows) {
    return model::FeatureBounds(config, rows, options.rank.count);
  };
  const DraftHeadConfig& head = config.draft_head;
  const DecoderTables* const tables = options.tables;
  std::vector<int64_t> bounds =
      tables == nullptr || head.has_head ? bounds_of(config.vocab_size) : tables->vocabulary_bounds;
  const int64_t first_id = head.has_embedding  ? bounds_of(head.num_ids)[index]
                           : tables != nullptr ? tables->first_id
                                               : bounds[index];
  if (bounds[index + 1] - bounds[index] != own.vocab_size) {
    return BadInput("{} ranks divide its vocabulary otherwise than the model's",
                    options.rank.count);
  }
  return std::unique_ptr<Decoder>(new OpsDecoder(own, options, first_id, std::move(bounds), bytes,
                                                 std::move(weights), std::move(workspace),
                                                 {config, checkpoint}, std::move(host), ops));
}

}  // namespace minisgl
