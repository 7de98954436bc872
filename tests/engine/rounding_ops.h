// Operations whose products of many tokens round their inputs to e4m3 where the checkpoint's
// publisher does (InputRounding), by the rule of cuda/kernels/scaled_input.h in plain loops: what
// the CUDA engine computes with the word w8a8.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/ops.h"
#include "model/forwarding_ops.h"

namespace minisgl {

class RoundingOps : public model::ForwardingOps {
 public:
  // `ops`: naive ones, whose products take inputs of any type. Products of more than
  // `exact_tokens_max` tokens are rounded.
  RoundingOps(std::unique_ptr<Ops> ops, int64_t exact_tokens_max)
      : ForwardingOps(ops.get()), owned_(std::move(ops)), exact_tokens_max_(exact_tokens_max) {}

  int num_rounded() const { return num_rounded_; }

  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    Result<Matrix> matrix = owned_->PackMatrix(parts, format);
    if (!matrix.ok()) return matrix;
    Rule rule;
    for (const WeightTensor& part : parts) {
      if (part.quantized() == nullptr || part.quantized()->numbers != E4M3Numbers()) return matrix;
      rule.rounding = part.quantized()->e4m3_inputs;
      rule.fixed = std::max(rule.fixed, part.quantized()->input_scale);
    }
    if (rule.rounding != InputRounding::kNone) rules_[matrix->storage.get()] = rule;
    return matrix;
  }

  void Linear(const LinearParams& params) override {
    const auto found = rules_.find(params.weight->storage.get());
    if (found == rules_.end() || params.num_tokens <= exact_tokens_max_) {
      return owned_->Linear(params);
    }
    ++num_rounded_;
    const int64_t width = params.weight->num_in;
    std::vector<float> x(static_cast<size_t>(params.num_tokens * width)), rounded;
    for (size_t i = 0; i < x.size(); ++i) x[i] = NumberAt(params.x, i);
    for (int64_t t = 0; t < params.num_tokens; ++t) {
      Append(found->second,
             std::span(x).subspan(static_cast<size_t>(t * width), static_cast<size_t>(width)),
             &rounded);
    }
    LinearParams with_rounded = params;
    with_rounded.x = {rounded.data(), DType::kF32};
    owned_->Linear(with_rounded);
  }

 private:
  struct Rule {
    InputRounding rounding = InputRounding::kNone;
    float fixed = 0;
  };

  static float NumberAt(ConstActivationPtr x, size_t index) {
    if (x.dtype == DType::kF32) return static_cast<const float*>(x.data)[index];
    const uint16_t bits = static_cast<const uint16_t*>(x.data)[index];
    return x.dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
  }
  static float Nearest(float x) {
    const float size = std::min(std::abs(x), 448.0f);
    const float unit = size < 0x1p-6f ? 0x1p-9f : std::ldexp(1.0f, std::ilogb(size) - 3);
    return std::copysign(std::min(std::nearbyint(size / unit) * unit, 448.0f), x);
  }
  static void Append(const Rule& rule, std::span<const float> x, std::vector<float>* to) {
    const size_t unit = rule.rounding == InputRounding::kGroups ? kScaledInputs : x.size();
    for (size_t begin = 0; begin < x.size(); begin += unit) {
      const auto part = x.subspan(begin, std::min(unit, x.size() - begin));
      float most = 0x1p-100f;
      for (const float value : part) most = std::max(most, std::abs(value));
      const bool is_fixed = rule.rounding == InputRounding::kTensor;
      const float scale = is_fixed ? rule.fixed : most / 448;
      const float inverse = is_fixed ? 1 / rule.fixed : 448 / most;
      for (const float value : part) to->push_back(scale * Nearest(value * inverse));
    }
  }

  const std::unique_ptr<Ops> owned_;
  const int64_t exact_tokens_max_;
  std::map<const void*, Rule> rules_;
  int num_rounded_ = 0;
};

}  // namespace minisgl
