// The transformer over Ops. One residual stream; every sublayer reads it through a norm and adds to
// it at the next norm, so that adding and normalising are one pass over memory.
#include "minisgl/model/decoder.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "model/architectures.h"
#include "model/device_array.h"
#include "model/model_weights.h"

namespace minisgl {
namespace {

// Elements of each activation a token (or a row of logits) needs. T is at most max_step_tokens, N
// max_logit_rows.
struct Widths {
  uint64_t hidden;     // D
  uint64_t qkv;        // (H + 2 HKV) * E
  uint64_t attention;  // H * E
  uint64_t gate_up;    // 2 I
  uint64_t gated;      // I
  uint64_t vocab;      // V
  uint64_t rotary;     // E / 2
};

Widths WidthsOf(const ModelConfig& config) {
  const auto heads = static_cast<uint64_t>(config.num_heads);
  const auto kv_heads = static_cast<uint64_t>(config.num_kv_heads);
  const auto head_dim = static_cast<uint64_t>(config.head_dim);
  const auto gated = static_cast<uint64_t>(config.intermediate_size);
  return {static_cast<uint64_t>(config.hidden_size),
          (heads + 2 * kv_heads) * head_dim,  // three 31-bit numbers: below 2^64
          heads * head_dim,
          2 * gated,
          gated,
          static_cast<uint64_t>(config.vocab_size),
          head_dim / 2};
}

std::optional<uint64_t> WorkspaceBytes(const ModelConfig& config, const DecoderOptions& options) {
  const Widths w = WidthsOf(config);
  const auto tokens = static_cast<uint64_t>(options.max_step_tokens);
  const auto rows = static_cast<uint64_t>(options.max_logit_rows);
  const auto positions = static_cast<uint64_t>(options.max_seq_len);
  const std::pair<uint64_t, uint64_t> arrays[] = {
      {tokens, w.hidden},  {tokens, w.hidden},    {tokens, w.qkv},      {tokens, w.attention},
      {tokens, w.gate_up}, {tokens, w.gated},     {rows, w.hidden},     {rows, w.hidden},
      {rows, w.vocab},     {positions, w.rotary}, {positions, w.rotary}};
  std::optional<uint64_t> sum = 0;
  for (const auto& [count, width] : arrays) {
    const uint64_t factors[] = {count, width, sizeof(float)};
    const auto bytes = CheckedProduct(factors);
    sum = bytes ? CheckedAdd(*sum, *bytes) : std::nullopt;
    if (!sum) return std::nullopt;
  }
  return sum;
}

struct Workspace {
  DeviceArray<float> residual;         // [T, D] the stream
  DeviceArray<float> hidden;           // [T, D] into and out of each sublayer
  DeviceArray<float> qkv;              // [T, (H + 2 HKV) * E]
  DeviceArray<float> attention;        // [T, H * E]
  DeviceArray<float> gate_up;          // [T, 2 I]
  DeviceArray<float> gated;            // [T, I]
  DeviceArray<float> wanted_residual;  // [N, D]
  DeviceArray<float> wanted_hidden;    // [N, D]
  DeviceArray<float> logits;           // [N, V]
  DeviceArray<float> cos, sin;         // [max_seq_len, E / 2]
};

Result<Workspace> MakeWorkspace(const ModelConfig& config, const DecoderOptions& options,
                                Ops* ops) {
  const Widths w = WidthsOf(config);
  const auto tokens = static_cast<uint64_t>(options.max_step_tokens);
  const auto rows = static_cast<uint64_t>(options.max_logit_rows);
  Workspace space;
  const std::tuple<DeviceArray<float>*, uint64_t, uint64_t> arrays[] = {
      {&space.residual, tokens, w.hidden},
      {&space.hidden, tokens, w.hidden},
      {&space.qkv, tokens, w.qkv},
      {&space.attention, tokens, w.attention},
      {&space.gate_up, tokens, w.gate_up},
      {&space.gated, tokens, w.gated},
      {&space.wanted_residual, rows, w.hidden},
      {&space.wanted_hidden, rows, w.hidden},
      {&space.logits, rows, w.vocab}};
  for (const auto& [array, count, width] : arrays) {
    MINISGL_ASSIGN_OR_RETURN(*array, DeviceArray<float>::Make(ops, {count, width}));
  }
  std::vector<float> cos, sin;
  MakeRotaryTables(config.rope, config.head_dim, options.max_seq_len, &cos, &sin);
  MINISGL_ASSIGN_OR_RETURN(space.cos, UploadFloats(ops, cos));
  MINISGL_ASSIGN_OR_RETURN(space.sin, UploadFloats(ops, sin));
  return space;
}

class OpsDecoder final : public Decoder {
 public:
  OpsDecoder(const ModelConfig& config, const DecoderOptions& options, Activation activation,
             DecoderBytes bytes, ModelWeights weights, Workspace workspace, Ops* ops)
      : config_(config),
        options_(options),
        activation_(activation),
        bytes_(bytes),
        weights_(std::move(weights)),
        space_(std::move(workspace)),
        ops_(ops) {}

  float* Forward(const ForwardInput& input) override {
    const int64_t num_tokens = input.plan->num_tokens();
    MINISGL_CHECK(num_tokens <= options_.max_step_tokens, "a step of {} tokens, room for {}",
                  num_tokens, options_.max_step_tokens);
    MINISGL_CHECK(static_cast<int64_t>(input.logit_tokens.size()) <= options_.max_logit_rows,
                  "{} rows of logits, room for {}", input.logit_tokens.size(),
                  options_.max_logit_rows);
    ops_->Embedding({.ids = input.token_ids,
                     .table = &weights_.embedding,
                     .scale = 1.0f,
                     .out = space_.residual.data(),
                     .num_tokens = num_tokens});
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      AttentionBlock(input, weights_.layers[i], input.kv[i], /*first=*/i == 0);
      FeedForwardBlock(weights_.layers[i], num_tokens);
    }
    return Logits(input.logit_tokens);
  }

  const ModelConfig& config() const override { return config_; }
  uint64_t weight_bytes() const override { return *bytes_.weights; }
  uint64_t workspace_bytes() const override { return *bytes_.workspace; }

 private:
  // Adds `x` to `residual` (a null x adds nothing) and writes its norm to `out`.
  void Norm(const float* x, float* residual, const DeviceArray<float>& weight, float* out,
            int64_t num_tokens) {
    ops_->RmsNorm({.x = x,
                   .residual = residual,
                   .weight = weight.data(),
                   .out = out,
                   .num_tokens = num_tokens,
                   .width = config_.hidden_size,
                   .eps = static_cast<float>(config_.rms_norm_eps)});
  }

  void Linear(const float* x, const Matrix& weight, float* out, int64_t num_tokens) {
    ops_->Linear(
        {.x = x, .weight = &weight, .bias = nullptr, .out = out, .num_tokens = num_tokens});
  }

  void AttentionBlock(const ForwardInput& input, const LayerWeights& layer, const KvLayer& kv,
                      bool first) {
    const BatchPlan& plan = *input.plan;
    const int64_t num_tokens = plan.num_tokens();
    float* hidden = space_.hidden.data();
    Norm(first ? nullptr : hidden, space_.residual.data(), layer.attention_norm, hidden,
         num_tokens);
    Linear(hidden, layer.qkv, space_.qkv.data(), num_tokens);
    ops_->RopeKvWrite({.qkv = space_.qkv.data(),
                       .positions = plan.positions.data(),
                       .slots = plan.slots.data(),
                       .cos = space_.cos.data(),
                       .sin = space_.sin.data(),
                       .kv = kv,
                       .num_tokens = num_tokens,
                       .num_heads = config_.num_heads,
                       .num_kv_heads = config_.num_kv_heads,
                       .head_dim = config_.head_dim,
                       .rotary_dim = config_.head_dim});
    ops_->Attention({.qkv = space_.qkv.data(),
                     .out = space_.attention.data(),
                     .kv = kv,
                     .page_table = input.page_table,
                     .page_table_stride = input.page_table_stride,
                     .table_row = plan.table_row.data(),
                     .row_begin = plan.row_begin.data(),
                     .kv_len = plan.kv_len.data(),
                     .num_rows = plan.num_rows(),
                     .num_tokens = num_tokens,
                     .num_heads = config_.num_heads,
                     .num_kv_heads = config_.num_kv_heads,
                     .head_dim = config_.head_dim,
                     .scale = static_cast<float>(1.0 / std::sqrt(double{1} * config_.head_dim)),
                     .sliding_window = 0,
                     .logit_softcap = 0,
                     .sinks = nullptr});
    Linear(space_.attention.data(), layer.attention_output, hidden, num_tokens);
  }

  void FeedForwardBlock(const LayerWeights& layer, int64_t num_tokens) {
    float* hidden = space_.hidden.data();
    Norm(hidden, space_.residual.data(), layer.feed_forward_norm, hidden, num_tokens);
    Linear(hidden, layer.gate_up, space_.gate_up.data(), num_tokens);
    ops_->GatedActivation({.gate_up = space_.gate_up.data(),
                           .out = space_.gated.data(),
                           .num_tokens = num_tokens,
                           .width = config_.intermediate_size,
                           .activation = activation_});
    Linear(space_.gated.data(), layer.down, hidden, num_tokens);
  }

  // Final norm and head of the wanted tokens alone: the head is the largest matrix of a small
  // model.
  float* Logits(const std::vector<int32_t>& tokens) {
    const auto num_rows = static_cast<int64_t>(tokens.size());
    if (num_rows == 0) return space_.logits.data();
    float* hidden = space_.wanted_hidden.data();
    float* residual = space_.wanted_residual.data();
    const std::pair<const float*, float*> gathers[] = {{space_.hidden.data(), hidden},
                                                       {space_.residual.data(), residual}};
    for (const auto& [from, to] : gathers) {
      ops_->GatherRows({.x = from,
                        .rows = tokens.data(),
                        .out = to,
                        .num_rows = num_rows,
                        .width = config_.hidden_size});
    }
    Norm(hidden, residual, weights_.final_norm, hidden, num_rows);
    Linear(hidden, weights_.head, space_.logits.data(), num_rows);
    return space_.logits.data();
  }

  const ModelConfig config_;
  const DecoderOptions options_;
  const Activation activation_;
  const DecoderBytes bytes_;
  const ModelWeights weights_;
  const Workspace space_;
  Ops* const ops_;
};

}  // namespace

Result<DecoderBytes> CountDecoderBytes(const ModelConfig& config, const DecoderOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(config.architecture));
  return DecoderBytes{.weights = ModelWeightBytes(config, *architecture, options.weight_dtype),
                      .workspace = WorkspaceBytes(config, options)};
}

Result<std::unique_ptr<Decoder>> Decoder::Load(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const DecoderOptions& options, Ops* ops) {
  MINISGL_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(config.architecture));
  MINISGL_ASSIGN_OR_RETURN(ModelWeights weights, LoadModelWeights(config, *architecture, checkpoint,
                                                                  options.weight_dtype, ops));
  MINISGL_ASSIGN_OR_RETURN(const DecoderBytes bytes, CountDecoderBytes(config, options));
  if (!bytes.weights || !bytes.workspace) {
    return Status(StatusCode::kOutOfMemory, "the model's sizes are past what memory can hold");
  }
  MINISGL_ASSIGN_OR_RETURN(Workspace workspace, MakeWorkspace(config, options, ops));
  return std::unique_ptr<Decoder>(new OpsDecoder(config, options, architecture->activation, bytes,
                                                 std::move(weights), std::move(workspace), ops));
}

}  // namespace minisgl
