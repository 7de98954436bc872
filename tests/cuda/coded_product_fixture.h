// Random matrices of every kind of codes, and products with them through emulated operations, for
// the suites of products with codes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda_ops_fixture.h"
#include "kernels/kernel_data.h"
#include "ops/random_codes.h"

namespace minisgl::cuda {

using cpu::Coding;
using cpu::kBlockFormats;
using cpu::kCodings;
using cpu::RandomBlocks;
using cpu::RandomCodes;

// Ragged lines and groups, one group for all inputs, groups in lines and lines in groups.
struct Shape {
  int64_t num_out, num_in, group_inputs;
};
inline constexpr Shape kShapes[] = {{5, 32, 8},    {3, 72, 16},  {7, 257, 257}, {2, 136, 128},
                                    {1, 7, 7},     {3, 300, 32}, {4, 384, 128}, {2, 200, 64},
                                    {3, 1064, 40}, {70, 24, 24}};

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return a.size() == b.size();
}

// Calls check(parts, what) for matrices of every kind of codes and scales.
template <typename Check>
void ForAllCodes(const Check& check) {
  for (const Coding& coding : kCodings) {
    for (const Shape& s : kShapes) {
      const RandomCodes first(coding, s.num_out, s.num_in, s.group_inputs, 1);
      const RandomCodes second(coding, 2, s.num_in, s.group_inputs, 2);
      const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
      check(std::span(parts), fmt::format("{} [{} + 2, {}]", coding.name, s.num_out, s.num_in));
    }
  }
  for (const char* const name : kBlockFormats) {
    const RandomBlocks first(name, 3, 768, 1), second(name, 2, 768, 2);
    const WeightTensor parts[] = {first.Tensor(), second.Tensor()};
    check(std::span(parts), name);
    if (FindBlockFormat(name)->block_elements > 64) continue;
    const WeightTensor cut[] = {parts[0].TakeInputs(64, 448), parts[1].TakeInputs(64, 448)};
    check(std::span(cut), std::string(name) + " cut");
  }
}

class CodedProductTest : public CudaOpsFixture, public testing::WithParamInterface<DType> {
 protected:
  CodedProductTest() : ops_(MakeReserved({.activation_dtype = GetParam()})) {}

  Matrix Pack(std::span<const WeightTensor> parts, Quantization quantization) {
    auto matrix = ops_->PackMatrix(parts, WeightFormat(GetParam(), quantization));
    MINISGL_CHECK(matrix.ok(), "{}", matrix.status().message());
    return *std::move(matrix);
  }
  std::vector<float> Multiply(const Matrix& weight, int64_t num_tokens, bool has_bias) {
    return MultiplyBy(weight, RandomFloats(num_tokens * weight.num_in, 4), has_bias);
  }
  // `values`: [T, in].
  std::vector<float> MultiplyBy(const Matrix& weight, const std::vector<float>& values,
                                bool has_bias = false) {
    const int64_t num_tokens = std::ssize(values) / weight.num_in;
    std::vector<uint16_t> x(values.size());
    StoreElements(x.data(), GetParam(), values);
    const auto in = Put(ops_.get(), x), bias = Put(ops_.get(), RandomFloats(weight.num_out, 5));
    const auto count = static_cast<size_t>(num_tokens * weight.num_out);
    const auto out = Put(ops_.get(), std::vector<float>(count));
    ops_->Linear({.x = {in.get(), GetParam()},
                  .weight = &weight,
                  .bias = has_bias ? static_cast<const float*>(bias.get()) : nullptr,
                  .out = {out.get(), DType::kF32},
                  .num_tokens = num_tokens});
    return Get<float>(ops_.get(), out.get(), count);
  }

  // The embeddings of every row, and of ids that have none.
  std::vector<float> EmbedAll(const Matrix& table) {
    std::vector<int32_t> ids;
    for (int32_t id = -1; id <= table.num_out; ++id) ids.push_back(id + 5);
    const auto on_device = Put(ops_.get(), ids);
    const size_t count = ids.size() * static_cast<size_t>(table.num_in);
    const auto out = Put(ops_.get(), std::vector<float>(count));
    ops_->Embedding({.ids = static_cast<const int32_t*>(on_device.get()),
                     .table = &table,
                     .scale = 1.7f,
                     .out = static_cast<float*>(out.get()),
                     .num_tokens = std::ssize(ids),
                     .first_id = 5});
    return Get<float>(ops_.get(), out.get(), count);
  }

  std::vector<float> RunExperts(const ExpertMatrices& weights, int64_t num_tokens) {
    constexpr int32_t kChosen = 2;
    std::vector<uint16_t> x(static_cast<size_t>(num_tokens * weights.num_in));
    StoreElements(x.data(), GetParam(), RandomFloats(std::ssize(x), 6));
    std::vector<int32_t> chosen;
    for (int64_t token = 0; token < num_tokens; ++token) {
      const auto first = static_cast<int32_t>(token * token % 4);
      chosen.push_back(first);
      chosen.push_back((first + 1 + static_cast<int32_t>(token % 3)) % 4);
    }
    const auto in = Put(ops_.get(), x), experts = Put(ops_.get(), chosen);
    const auto count = static_cast<size_t>(num_tokens * kChosen * weights.num_out);
    const auto out = Put(ops_.get(), std::vector<uint16_t>(count));
    ops_->ExpertLinear({.x = {in.get(), GetParam()},
                        .weights = &weights,
                        .bias = nullptr,
                        .experts = static_cast<const int32_t*>(experts.get()),
                        .out = {out.get(), GetParam()},
                        .num_tokens = num_tokens,
                        .num_chosen = kChosen,
                        .x_per_choice = false});
    const auto bits = Get<uint16_t>(ops_.get(), out.get(), count);
    return LoadElements(bits.data(), GetParam(), std::ssize(bits));
  }

  std::unique_ptr<DeviceOps> ops_;
};

}  // namespace minisgl::cuda
