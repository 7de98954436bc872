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
  const uint64_t bytes = DTypeBytes(options.activation_dtype);
  const uint64_t arrays[][3] = {
      {tokens, w.hidden, 4},        {tokens, w.hidden, bytes},  {tokens, w.qkv, bytes},
      {tokens, w.attention, bytes}, {tokens, w.gate_up, bytes}, {tokens, w.gated, bytes},
      {rows, w.hidden, 4},          {rows, w.hidden, bytes},    {rows, w.vocab, 4},
      {positions, w.rotary, 4},     {positions, w.rotary, 4}};
  std::optional<uint64_t> sum = 0;
  for (const auto& factors : arrays) {
    const auto product = CheckedProduct(factors);
    sum = product ? CheckedAdd(*sum, *product) : std::nullopt;
    if (!sum) return std::nullopt;
  }
  return sum;
}

// The residual stream and the logits are f32, whatever the device computes with.
struct Workspace {
  DeviceArray<float> residual;         // [T, D] the stream
  ActivationArray hidden;              // [T, D] into and out of each sublayer
  ActivationArray qkv;                 // [T, (H + 2 HKV) * E]
  ActivationArray attention;           // [T, H * E]
  ActivationArray gate_up;             // [T, 2 I]
  ActivationArray gated;               // [T, I]
  DeviceArray<float> wanted_residual;  // [N, D]
  ActivationArray wanted_hidden;       // [N, D]
  DeviceArray<float> logits;           // [N, V]
  DeviceArray<float> cos, sin;         // [max_seq_len, E / 2]
};

Result<Workspace> MakeWorkspace(const ModelConfig& config, const DecoderOptions& options,
                                Ops* ops) {
  const Widths w = WidthsOf(config);
  const auto tokens = static_cast<uint64_t>(options.max_step_tokens);
  const auto rows = static_cast<uint64_t>(options.max_logit_rows);
  Workspace space;
  const std::tuple<DeviceArray<float>*, uint64_t, uint64_t> floats[] = {
      {&space.residual, tokens, w.hidden},
      {&space.wanted_residual, rows, w.hidden},
      {&space.logits, rows, w.vocab}};
  for (const auto& [array, count, width] : floats) {
    MINISGL_ASSIGN_OR_RETURN(*array, DeviceArray<float>::Make(ops, {count, width}));
  }
  const std::tuple<ActivationArray*, uint64_t, uint64_t> activations[] = {
      {&space.hidden, tokens, w.hidden},       {&space.qkv, tokens, w.qkv},
      {&space.attention, tokens, w.attention}, {&space.gate_up, tokens, w.gate_up},
      {&space.gated, tokens, w.gated},         {&space.wanted_hidden, rows, w.hidden}};
  for (const auto& [array, count, width] : activations) {
    MINISGL_ASSIGN_OR_RETURN(*array,
                             ActivationArray::Make(ops, ops->activation_dtype(), {count, width}));
  }
  std::vector<float> cos, sin;
  MakeRotaryTables(config.rope, config.head_dim, options.max_seq_len, &cos, &sin);
  MINISGL_ASSIGN_OR_RETURN(space.cos, Upload<float>(ops, cos));
  MINISGL_ASSIGN_OR_RETURN(space.sin, Upload<float>(ops, sin));
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
    const int64_t num_tokens = input.num_tokens;
    MINISGL_CHECK(num_tokens <= options_.max_step_tokens, "a step of {} tokens, room for {}",
                  num_tokens, options_.max_step_tokens);
    MINISGL_CHECK(input.num_logit_tokens <= options_.max_logit_rows,
                  "{} rows of logits, room for {}", input.num_logit_tokens,
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
    return Logits(input);
  }

  const ModelConfig& config() const override { return config_; }
  uint64_t weight_bytes() const override { return *bytes_.weights; }
  uint64_t workspace_bytes() const override { return *bytes_.workspace; }

 private:
  // Adds `x` to `residual` (a null x adds nothing) and writes its norm to `out`.
  void Norm(ConstActivationPtr x, float* residual, const DeviceArray<float>& weight,
            ActivationPtr out, int64_t num_tokens) {
    ops_->RmsNorm({.x = x,
                   .residual = residual,
                   .weight = weight.data(),
                   .out = out,
                   .num_tokens = num_tokens,
                   .width = config_.hidden_size,
                   .eps = static_cast<float>(config_.rms_norm_eps)});
  }

  void Linear(ConstActivationPtr x, const Matrix& weight, ActivationPtr out, int64_t num_tokens,
              const float* bias = nullptr) {
    ops_->Linear({.x = x, .weight = &weight, .bias = bias, .out = out, .num_tokens = num_tokens});
  }

  void AttentionBlock(const ForwardInput& input, const LayerWeights& layer, const KvLayer& kv,
                      bool first) {
    const int64_t num_tokens = input.num_tokens;
    const ActivationPtr hidden = space_.hidden.ptr();
    Norm(first ? ConstActivationPtr() : hidden, space_.residual.data(), layer.attention_norm,
         hidden, num_tokens);
    Linear(hidden, layer.qkv, space_.qkv.ptr(), num_tokens, layer.qkv_bias.data());
    ops_->RopeKvWrite({.qkv = space_.qkv.ptr(),
                       .positions = input.positions,
                       .slots = input.slots,
                       .cos = space_.cos.data(),
                       .sin = space_.sin.data(),
                       .kv = kv,
                       .num_tokens = num_tokens,
                       .num_heads = config_.num_heads,
                       .num_kv_heads = config_.num_kv_heads,
                       .head_dim = config_.head_dim,
                       .rotary_dim = config_.head_dim,
                       .q_norm = layer.query_norm.data(),
                       .k_norm = layer.key_norm.data(),
                       .norm_eps = static_cast<float>(config_.rms_norm_eps)});
    ops_->Attention({.qkv = space_.qkv.ptr(),
                     .out = space_.attention.ptr(),
                     .kv = kv,
                     .page_table = input.page_table,
                     .page_table_stride = input.page_table_stride,
                     .table_row = input.table_row,
                     .row_begin = input.row_begin,
                     .kv_len = input.kv_len,
                     .num_rows = input.num_rows,
                     .num_decode_rows = input.num_decode_rows,
                     .num_tokens = num_tokens,
                     .num_heads = config_.num_heads,
                     .num_kv_heads = config_.num_kv_heads,
                     .head_dim = config_.head_dim,
                     .scale = static_cast<float>(1.0 / std::sqrt(double{1} * config_.head_dim)),
                     .sliding_window = 0,
                     .logit_softcap = 0,
                     .sinks = nullptr});
    Linear(space_.attention.ptr(), layer.attention_output, hidden, num_tokens);
  }

  void FeedForwardBlock(const LayerWeights& layer, int64_t num_tokens) {
    const ActivationPtr hidden = space_.hidden.ptr();
    Norm(hidden, space_.residual.data(), layer.feed_forward_norm, hidden, num_tokens);
    Linear(hidden, layer.gate_up, space_.gate_up.ptr(), num_tokens);
    ops_->GatedActivation({.gate_up = space_.gate_up.ptr(),
                           .out = space_.gated.ptr(),
                           .num_tokens = num_tokens,
                           .width = config_.intermediate_size,
                           .activation = activation_});
    Linear(space_.gated.ptr(), layer.down, hidden, num_tokens);
  }

  // Final norm and head of the wanted tokens alone: the head is the largest matrix of a small
  // model.
  float* Logits(const ForwardInput& input) {
    const int64_t num_rows = input.num_logit_tokens;
    if (num_rows == 0) return space_.logits.data();
    const ActivationPtr hidden = space_.wanted_hidden.ptr();
    float* residual = space_.wanted_residual.data();
    const std::pair<ActivationPtr, ActivationPtr> gathers[] = {{space_.hidden.ptr(), hidden},
                                                               {space_.residual.data(), residual}};
    for (const auto& [from, to] : gathers) {
      ops_->GatherRows({.x = from,
                        .rows = input.logit_tokens,
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
