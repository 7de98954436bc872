// The steps of which projectors are made.
#pragma once

#include <string>
#include <utility>

#include "minisgl/weights/tower_config.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

inline TowerStep StepOf(TowerStepKind kind) {
  TowerStep step;
  step.kind = kind;
  return step;
}
inline TowerStep JoinStep() { return StepOf(TowerStepKind::kJoin); }
inline TowerStep GeluStep() { return StepOf(TowerStepKind::kActivate); }
inline TowerStep PoolStep(double factor) {
  TowerStep step = StepOf(TowerStepKind::kPool);
  step.factor = factor;
  return step;
}
inline TowerStep NormStep(std::string name, NormKind kind, double eps, bool has_bias) {
  TowerStep step = StepOf(TowerStepKind::kNorm);
  step.name = std::move(name);
  step.norm = kind;
  step.eps = eps;
  step.has_bias = has_bias;
  return step;
}
inline TowerStep ProductStep(std::string name, int64_t width, bool has_bias) {
  TowerStep step = StepOf(TowerStepKind::kLinear);
  step.name = std::move(name);
  step.width = width;
  step.has_bias = has_bias;
  return step;
}

// Features of a unit of joined patches.
inline int64_t JoinedWidth(const TowerConfig& config) {
  return config.hidden_size * config.unit_patches();
}

// Two products with GELU between them, and biases if multimodal_projector_bias is not false.
void SetLlavaSteps(FieldReader* model, TowerConfig* config);

}  // namespace minisgl::weights
