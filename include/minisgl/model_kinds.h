// Variants of a model's layers: which norm, which activation, how experts are chosen. Read from a
// configuration, and run by every implementation of Ops.
#pragma once

#include <cstdint>

namespace minisgl {

// Formulas are at NormParams.
enum class NormKind : uint8_t { kRms, kLayer };

enum class Activation : uint8_t {
  kSilu,      // x sigmoid(x)
  kGelu,      // the exact form, with the error function
  kGeluTanh,  // the approximation of it with tanh
  kRelu2,     // max(x, 0)^2
  // GPT-OSS: with g = min(gate, limit) and u = clamp(up, -limit, limit), g sigmoid(1.702 g) (u + 1)
  kClampedSwiglu,
  kSigmoid,  // of a gate; not of a feed-forward part
  kXielu,    // XieluParams has the formula
};

// The first part of a layer, which mixes tokens. Mixers other than attention keep a state of a
// sequence, whose size does not grow with its length. Formulas are at ShortConvParams and
// RecurrenceParams.
enum class Mixer : uint8_t {
  kAttention,
  kShortConv,           // a short convolution between two gates (LFM2)
  kDeltaNet,            // a convolution, then the gated delta rule (Qwen3-Next, Qwen3.5)
  kMamba2,              // a convolution, then a selective state space (Granite 4, Nemotron-H)
  kNone,                // the layer is a feed-forward part alone
  kAttentionAndMamba2,  // both, of the same input; their outputs are added (Falcon-H1)
};
constexpr bool HasState(Mixer mixer) { return mixer != Mixer::kAttention && mixer != Mixer::kNone; }
constexpr bool HasAttention(Mixer mixer) {
  return mixer == Mixer::kAttention || mixer == Mixer::kAttentionAndMamba2;
}

// Upper bound on the weights of a channel of a short convolution.
inline constexpr int32_t kConvLengthMax = 8;

// How queries and keys are normalised.
enum class QkNorm : uint8_t {
  kNone,
  kHead,             // head by head, with weights shared by all heads, before the rotation
  kHeadAfterRotary,  // the same, after the rotation
  kHeadOwn,          // head by head, with separate weights for each head, before the rotation
  kWhole,            // all heads of a token as one vector, before the rotation
};

// The function from a token's router logits to the scores of its experts.
enum class RouteScore : uint8_t {
  kSoftmax,  // over all experts
  kSigmoid,  // of each logit by itself
};

// How a token's experts are chosen and weighted. Formulas are at RouteParams.
struct Routing {
  RouteScore score = RouteScore::kSoftmax;
  bool renormalize = false;       // shares are divided by the sum of the chosen scores
  int32_t num_groups = 1;         // groups of equally many consecutive experts
  int32_t num_chosen_groups = 1;  // groups that a token's experts are chosen from
  int32_t best_of_group = 1;      // a group's value sums this many of its largest: 1 or 2
  float factor = 1;               // of the shares
  float sum_eps = 0;              // kSigmoid: added to that sum
  float sum_min = 0;              // kSoftmax: lower bound on that sum

  bool operator==(const Routing&) const = default;
};

}  // namespace minisgl
