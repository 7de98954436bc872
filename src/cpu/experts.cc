// See experts.h.
#include "cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cpu/coded_product.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// True if logit a ranks before logit b. Equal logits keep the order of their experts.
bool IsBefore(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(b);
  return a > b;
}

// Finds the experts with the largest logits, in order, by insertion sort.
void ChooseExperts(const float* logits, int32_t num_experts, int32_t num_chosen, int32_t* chosen) {
  int32_t found = 0;
  for (int32_t expert = 0; expert < num_experts; ++expert) {
    if (found == num_chosen && !IsBefore(logits[expert], logits[chosen[found - 1]])) continue;
    int32_t at = found < num_chosen ? found++ : found - 1;
    for (; at > 0 && IsBefore(logits[expert], logits[chosen[at - 1]]); --at) {
      chosen[at] = chosen[at - 1];
    }
    chosen[at] = expert;
  }
}

}  // namespace

Result<PackedExperts> PackAllExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format, PackStore* store,
                                     ThreadPool* pool) {
  MINISGL_CHECK(!experts.empty(), "no experts");
  PackedExperts packed;
  packed.experts.reserve(experts.size());
  for (const auto& parts : experts) {
    MINISGL_ASSIGN_OR_RETURN(PackedMatrix matrix, FindOrPack(parts, format, store, pool));
    MINISGL_CHECK(packed.experts.empty() || (matrix.num_out == packed.experts[0].num_out &&
                                             matrix.num_in == packed.experts[0].num_in),
                  "experts of different shapes");
    packed.experts.push_back(std::move(matrix));
  }
  return packed;
}

void RouteTokens(const RouteParams& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = p.logits + t * p.num_experts;
    int32_t* chosen = p.experts + t * p.num_chosen;
    float* shares = p.shares + t * p.num_chosen;
    ChooseExperts(logits, p.num_experts, p.num_chosen, chosen);
    const double largest = logits[chosen[0]];
    double sum = 0;
    if (p.over_chosen) {
      for (int32_t k = 0; k < p.num_chosen; ++k) sum += std::exp(logits[chosen[k]] - largest);
    } else {
      for (int32_t e = 0; e < p.num_experts; ++e) sum += std::exp(logits[e] - largest);
    }
    for (int32_t k = 0; k < p.num_chosen; ++k) {
      shares[k] = static_cast<float>(std::exp(logits[chosen[k]] - largest) / sum);
    }
  }
}

void PlanExperts(const ExpertLinearParams& p, int64_t rows_max, int64_t rows_multiple,
                 ExpertPlan* plan) {
  const int64_t num_experts = p.weights->num_experts;
  const int64_t num_pairs = p.num_tokens * p.num_chosen;
  // Where the pairs of each expert begin: a counting sort.
  std::vector<int32_t> begin(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const int32_t expert = p.experts[pair];
    MINISGL_CHECK(expert >= 0 && expert < num_experts, "expert {} of {}", expert, num_experts);
    ++begin[expert + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) begin[e + 1] += begin[e];
  std::vector<int32_t> end(begin.begin(), begin.end() - 1);
  plan->pairs.resize(static_cast<size_t>(num_pairs));
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    plan->pairs[end[p.experts[pair]]++] = static_cast<int32_t>(pair);
  }
  plan->chunks.clear();
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    if (count == 0) continue;
    const int64_t rows =
        CeilDiv(CeilDiv(count, CeilDiv(count, rows_max)), rows_multiple) * rows_multiple;
    for (int64_t first = 0; first < count; first += rows) {
      plan->chunks.push_back({e, std::span(plan->pairs)
                                     .subspan(static_cast<size_t>(begin[e] + first),
                                              static_cast<size_t>(std::min(rows, count - first)))});
    }
  }
}

int64_t ExpertScratchFloats(int64_t rows_max, int64_t row_bytes) {
  return kLinearScratchFloats + rows_max * (row_bytes / kFloatBytes + kGroupWidth);
}

void RunExpertItem(const ExpertLinearParams& p, const ExpertItem& item, const LinearInput& x,
                   const ExpertThread& thread) {
  const auto& storage = *static_cast<const PackedExperts*>(p.weights->storage.get());
  const auto& [expert, pairs] = *item.chunk;
  const PackedMatrix& weight = storage.experts[expert];
  const auto num_rows = static_cast<int64_t>(pairs.size());
  const auto row_of = [&](int32_t pair) {
    return x.rows + (p.x_per_choice ? pair : pair / p.num_chosen) * x.stride;
  };
  LinearBlock block = {.x = row_of(pairs[0]),
                       .x_stride = x.stride,
                       .weight = &weight,
                       .bias = p.bias == nullptr ? nullptr : p.bias + expert * weight.num_out,
                       .out = p.out.f32() + pairs[0] * weight.num_out,
                       .out_stride = weight.num_out,
                       .num_rows = num_rows,
                       .group = 0,
                       .scratch = thread.scratch};
  // A single row is read and written in place. Several rows are copied next to each other, and
  // their outputs are copied back.
  float* const gathered = thread.scratch + kLinearScratchFloats;
  const int64_t row_floats = x.stride / kFloatBytes;
  if (num_rows > 1) {
    for (int64_t r = 0; r < num_rows; ++r) {
      std::memcpy(gathered + r * row_floats, row_of(pairs[r]), static_cast<size_t>(x.stride));
    }
    block.x = reinterpret_cast<const std::byte*>(gathered);
    block.out = gathered + num_rows * row_floats;
    block.out_stride = kGroupWidth;
  }
  float* const results = block.out;
  for (block.group = item.group_begin; block.group < item.group_end; ++block.group) {
    const int64_t first = block.group * kGroupWidth;
    if (num_rows == 1) block.out = results + first;
    MultiplyBlock(thread.target, *thread.linear, block, thread.expanded);
    if (num_rows == 1) continue;
    const int64_t width = std::min(kGroupWidth, weight.num_out - first);
    for (int64_t r = 0; r < num_rows; ++r) {
      std::copy_n(results + r * kGroupWidth, width,
                  p.out.f32() + pairs[r] * weight.num_out + first);
    }
  }
}

}  // namespace minisgl::cpu
