// Experts of a device's layers that are in the memory of the host and computed there.
//
// The router runs on the device. A token's input, its experts and their shares are copied to the
// host, which computes the sum over the token's experts, and the sum is copied back. Between
// Ops::BeginHostExperts and Ops::EndHostExperts the device runs other operations.
#pragma once

#include <cstdint>

#include "minisgl/ops_params.h"

namespace minisgl {

// Rows of a step, in the memory of the host.
struct HostExpertRows {
  ConstActivationPtr x;    // [T, width] of the device's activation type
  const int32_t* experts;  // [T, K]
  const float* shares;     // [T, K]
  ActivationPtr out;       // [T, width] of the same type
  int64_t num_tokens;      // T
};

// The experts of one layer.
class HostExpertLayer {
 public:
  virtual ~HostExpertLayer() = default;
  // Sets out[t] to the sum of shares[t, k] * expert(experts[t, k])(x[t]). A row's bits do not
  // depend on the other rows. Called on a thread of the device's driver, for one layer of an engine
  // at a time; it must not call the device. May throw.
  virtual void Run(const HostExpertRows& rows) = 0;
};

// All pointers are to device memory. out[t] = layer(x[t]) for the first *num_real tokens, and 0 for
// others, which pad the step to the size of a graph.
struct HostExpertsParams {
  HostExpertLayer* layer;  // outlives the operation, and the graphs that have it
  ConstActivationPtr x;    // [T, width]
  const int32_t* experts;  // [T, K]
  const float* shares;     // [T, K]
  ActivationPtr out;       // [T, width]; not x
  int64_t num_tokens;      // T
  int64_t width;
  int32_t num_chosen;                 // K
  const int32_t* num_real = nullptr;  // [1]; null: T
};

}  // namespace minisgl
