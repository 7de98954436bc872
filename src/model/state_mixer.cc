// See state_mixer.h. Letters are those of RecurrenceParams.
#include "model/state_mixer.h"

#include "model/rank_norms.h"

namespace minisgl::model {
namespace {

class StateMixer {
 public:
  StateMixer(const ModelConfig& config, const StateWeights& weights, const Workspace& space,
             const ForwardInput& input, size_t index, int32_t num_ranks, Ops* ops)
      : states_(config.states),
        weights_(weights),
        space_(space),
        input_(input),
        layer_(input.states[index]),
        num_ranks_(num_ranks),
        ops_(ops) {}

  // out = output(c * conv(b * x)) with (b, c, x) = input(hidden)
  void RunShortConv(ActivationPtr out) const {
    Linear(space_.hidden.ptr(), weights_.input, weights_.input_bias.data(), space_.state_in.ptr());
    const int64_t width = states_.conv_width;
    const auto part = [&](int64_t index) {
      return ConstActivationPtr(space_.state_in.ptr().At(index * width));
    };
    ops_->ShortConv(Conv(part(2), part(0), part(1), 3 * width, /*silu=*/false));
    Linear(space_.state_conv.ptr(), weights_.output, weights_.output_bias.data(), out);
  }

  // Convolution, recurrence, gate and norm.
  void RunRecurrence(Mixer mixer, ActivationPtr out) const {
    const ConstActivationPtr hidden = space_.hidden.ptr();
    Linear(hidden, weights_.input, weights_.input_bias.data(), space_.state_in.ptr());
    Linear(hidden, weights_.gate, weights_.gate_bias.data(), space_.state_gate.ptr());
    Linear(hidden, weights_.scalars, weights_.scalars_bias.data(), space_.state_scalars.data());
    ops_->ShortConv(
        Conv(space_.state_in.ptr(), nullptr, nullptr, states_.conv_width, /*silu=*/true));
    if (mixer == Mixer::kDeltaNet) {
      NormQueriesAndKeys();
      RunDelta();
    } else {
      RunMamba2();
    }
    if (states_.gate_before_norm) Gate();
    if (states_.norm_group > 0) NormOutput();
    if (!states_.gate_before_norm) Gate();
    Linear(space_.state_out.ptr(), weights_.output, weights_.output_bias.data(), out);
  }

 private:
  void Linear(ConstActivationPtr x, const Matrix& weight, const float* bias,
              ActivationPtr out) const {
    ops_->Linear(
        {.x = x, .weight = &weight, .bias = bias, .out = out, .num_tokens = input_.num_tokens});
  }

  ShortConvParams Conv(ConstActivationPtr x, ConstActivationPtr x_factor,
                       ConstActivationPtr out_factor, int64_t stride, bool silu) const {
    return {.x = x,
            .x_factor = x_factor,
            .out_factor = out_factor,
            .stride = stride,
            .weight = weights_.conv.data(),
            .bias = weights_.conv_bias.data(),
            .states = layer_.conv,
            .out = space_.state_conv.ptr(),
            .segments = input_.state_segments,
            .num_tokens = input_.num_tokens,
            .width = states_.conv_width,
            .length = states_.conv_length,
            .silu = silu};
  }

  // Gives each query and key its length; the formula is at LoadRecurrence in model_weights.cc.
  void NormQueriesAndKeys() const {
    constexpr double kLengthEps = 1e-6;
    const ActivationPtr queries = space_.state_conv.ptr();
    ops_->Norm({.x = queries,
                .residual = nullptr,
                .weight = weights_.query_key_norm.data(),
                .out = queries,
                .num_tokens = input_.num_tokens,
                .width = int64_t{2} * states_.num_groups * states_.key_dim,
                .eps = static_cast<float>(kLengthEps / states_.key_dim),
                .group_width = states_.key_dim,
                .stride = states_.conv_width});
  }

  // The convolved channels are queries, keys and values.
  void RunDelta() const {
    const int64_t keys = int64_t{states_.num_groups} * states_.key_dim;
    RecurrenceParams params = Recurrence(RecurrenceKind::kDelta);
    params.query = space_.state_conv.ptr();
    params.key = space_.state_conv.ptr().At(keys);
    params.value = space_.state_conv.ptr().At(2 * keys);
    params.gain = space_.state_scalars.data() + states_.num_heads;
    params.scalar_stride = int64_t{2} * states_.num_heads;
    params.gain_factor = static_cast<float>(states_.gain_factor);
    ops_->Recurrence(params);
  }

  // The convolved channels are values, keys and queries.
  void RunMamba2() const {
    const int64_t inner = states_.inner_width();
    RecurrenceParams params = Recurrence(RecurrenceKind::kMamba2);
    params.value = space_.state_conv.ptr();
    params.key = space_.state_conv.ptr().At(inner);
    params.query =
        space_.state_conv.ptr().At(inner + int64_t{states_.num_groups} * states_.key_dim);
    params.scalar_stride = states_.num_heads;
    params.skip = weights_.skip.data();
    params.step_min = static_cast<float>(states_.step_min);
    params.step_max = static_cast<float>(states_.step_max);
    ops_->Recurrence(params);
  }

  RecurrenceParams Recurrence(RecurrenceKind kind) const {
    return {.kind = kind,
            .query = nullptr,
            .key = nullptr,
            .value = nullptr,
            .stride = states_.conv_width,
            .decay = space_.state_scalars.data(),
            .gain = nullptr,
            .scalar_stride = 0,
            .decay_scale = static_cast<float>(states_.decay_factor),
            .decay_bias = weights_.decay_bias.data(),
            .decay_rate = weights_.decay_rate.data(),
            .skip = nullptr,
            .states = layer_.matrices,
            .out = space_.state_out.ptr(),
            .segments = input_.state_segments,
            .num_tokens = input_.num_tokens,
            .num_heads = states_.num_heads,
            .num_groups = states_.num_groups,
            .key_dim = states_.key_dim,
            .value_dim = states_.value_dim};
  }

  // Multiplies the output by silu(gate).
  void Gate() const {
    ops_->Activate({.gate_up = space_.state_gate.ptr(),
                    .out = space_.state_out.ptr(),
                    .num_tokens = input_.num_tokens,
                    .width = states_.inner_width(),
                    .activation = Activation::kSilu,
                    .gated = false,
                    .up = space_.state_out.ptr(),
                    .up_stride = states_.inner_width(),
                    .gate_scale = static_cast<float>(states_.gate_factor)});
  }

  void NormOutput() const {
    const ActivationPtr out = space_.state_out.ptr();
    const bool over_ranks = num_ranks_ > 1 && NormalizesStatesOverRanks(states_);
    NormParams norm = {.x = out,
                       .residual = nullptr,
                       .weight = weights_.norm.data(),
                       .out = out,
                       .num_tokens = input_.num_tokens,
                       .width = states_.inner_width(),
                       .eps = static_cast<float>(states_.norm_eps),
                       .group_width = over_ranks ? 0 : states_.norm_group};
    if (over_ranks) {
      NormOverRanks({&norm, 1}, num_ranks_, space_.mean_squares.data(), ops_);
    } else {
      ops_->Norm(norm);
    }
  }

  const StateConfig& states_;
  const StateWeights& weights_;
  const Workspace& space_;
  const ForwardInput& input_;
  const StateLayer layer_;
  const int32_t num_ranks_;
  Ops* const ops_;
};

}  // namespace

void RunStateMixer(const ModelConfig& config, const StateWeights& weights, const Workspace& space,
                   const ForwardInput& input, size_t index, int32_t num_ranks, ActivationPtr out,
                   Ops* ops) {
  const StateMixer mixer(config, weights, space, input, index, num_ranks, ops);
  const Mixer kind = config.layers[index].mixer;
  if (kind == Mixer::kShortConv) {
    mixer.RunShortConv(out);
  } else {
    mixer.RunRecurrence(kind, out);
  }
}

}  // namespace minisgl::model

namespace minisgl {

int64_t StateConvFloats(const StateConfig& states) {
  return states.conv_length == 0 ? 0 : int64_t{states.conv_length - 1} * states.conv_width;
}

int64_t StateMatrixFloats(const StateConfig& states) {
  return RecurrenceStateFloats(states.num_heads, states.key_dim, states.value_dim);
}

}  // namespace minisgl
