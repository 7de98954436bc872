// Variants of a model's layers: which norm, which activation. Read from a configuration, and run by
// every implementation of Ops.
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
};

// How queries and keys are normalised.
enum class QkNorm : uint8_t {
  kNone,
  kHead,             // head by head, with weights shared by all heads, before the rotation
  kHeadAfterRotary,  // the same, after the rotation
  kHeadOwn,          // head by head, with separate weights for each head, before the rotation
  kWhole,            // all heads of a token as one vector, before the rotation
};

}  // namespace minisgl
