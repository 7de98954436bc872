// See state_mixer.h. Letters are those of RecurrenceParams.
#include "model/state_mixer.h"

namespace minisgl::model {
namespace {

class StateMixer {
 public:
  StateMixer(const ModelConfig& config, const StateWeights& weights, const Workspace& space,
             const ForwardInput& input, size_t index, Ops* ops)
      : states_(config.states),
        weights_(weights),
        space_(space),
        input_(input),
        layer_(input.states[index]),
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

  const StateConfig& states_;
  const StateWeights& weights_;
  const Workspace& space_;
  const ForwardInput& input_;
  const StateLayer layer_;
  Ops* const ops_;
};

}  // namespace

void RunStateMixer(const ModelConfig& config, const StateWeights& weights, const Workspace& space,
                   const ForwardInput& input, size_t index, ActivationPtr out, Ops* ops) {
  const StateMixer mixer(config, weights, space, input, index, ops);
  mixer.RunShortConv(out);
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
