// See experts.h.
#include "cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "cpu/coded_product.h"
#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cpu {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// True if a ranks before b. Equal ones keep the order of their experts.
bool IsBefore(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(b);
  return a > b;
}

// The indices of the largest values that were offered, in order, by insertion sort.
class LargestValues {
 public:
  // At most `count`, in `chosen`.
  LargestValues(const float* values, int32_t count, int32_t* chosen)
      : values_(values), count_(count), chosen_(chosen) {}

  // Indices of later calls are larger.
  void Offer(int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      if (found_ == count_ && !IsBefore(values_[i], values_[chosen_[found_ - 1]])) continue;
      int32_t at = found_ < count_ ? found_++ : found_ - 1;
      for (; at > 0 && IsBefore(values_[i], values_[chosen_[at - 1]]); --at) {
        chosen_[at] = chosen_[at - 1];
      }
      chosen_[at] = i;
    }
  }

 private:
  const float* const values_;
  const int32_t count_;
  int32_t* const chosen_;
  int32_t found_ = 0;
};

// NaN if any is NaN, so that a softmax is.
double LargestLogit(const float* logits, int32_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int32_t e = 0; e < count; ++e) {
    if (std::isnan(logits[e])) return logits[e];
    largest = std::max(largest, logits[e]);
  }
  return largest;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Chooses experts by their values (RouteParams).
class ValueRouter {
 public:
  explicit ValueRouter(const RouteParams& params)
      : p_(params),
        group_size_(p_.num_experts / p_.routing.num_groups),
        values_(static_cast<size_t>(p_.num_experts)),
        group_values_(static_cast<size_t>(p_.routing.num_groups)),
        groups_(static_cast<size_t>(p_.routing.num_chosen_groups)) {}

  void Choose(const float* logits, int32_t* chosen) {
    FillValues(logits);
    ChooseGroups();
    LargestValues experts(values_.data(), p_.num_chosen, chosen);
    for (const int32_t group : groups_) {
      experts.Offer(group * group_size_, (group + 1) * group_size_);
    }
  }

 private:
  void FillValues(const float* logits) {
    const int32_t count = p_.num_experts;
    const bool is_softmax = p_.routing.score == RouteScore::kSoftmax;
    const double largest = is_softmax ? LargestLogit(logits, count) : 0;
    double sum = 0;
    for (int32_t e = 0; is_softmax && e < count; ++e) sum += std::exp(logits[e] - largest);
    for (int32_t e = 0; e < count; ++e) {
      const double score = is_softmax ? std::exp(logits[e] - largest) / sum : Sigmoid(logits[e]);
      values_[e] = static_cast<float>(score) + (p_.bias == nullptr ? 0 : p_.bias[e]);
    }
  }

  // In ascending order.
  void ChooseGroups() {
    for (int32_t group = 0; group < p_.routing.num_groups; ++group) {
      int32_t best[2] = {};
      const int32_t count = p_.routing.best_of_group;
      LargestValues(values_.data(), count, best)
          .Offer(group * group_size_, (group + 1) * group_size_);
      group_values_[group] = values_[best[0]] + (count == 2 ? values_[best[1]] : 0);
    }
    LargestValues(group_values_.data(), p_.routing.num_chosen_groups, groups_.data())
        .Offer(0, p_.routing.num_groups);
    std::sort(groups_.begin(), groups_.end());
  }

  const RouteParams& p_;
  const int32_t group_size_;
  std::vector<float> values_, group_values_;
  std::vector<int32_t> groups_;
};

void ShareOfSoftmax(const RouteParams& p, const float* logits, const int32_t* chosen,
                    float* shares) {
  const double largest =
      ChoosesByLogits(p) ? logits[chosen[0]] : LargestLogit(logits, p.num_experts);
  double sum = 0;
  if (p.routing.renormalize) {
    for (int32_t k = 0; k < p.num_chosen; ++k) sum += std::exp(logits[chosen[k]] - largest);
  }
  if (!p.routing.renormalize || p.routing.sum_min > 0) {
    double all = 0;
    for (int32_t e = 0; e < p.num_experts; ++e) all += std::exp(logits[e] - largest);
    sum = p.routing.renormalize ? std::max(sum, p.routing.sum_min * all) : all;
  }
  for (int32_t k = 0; k < p.num_chosen; ++k) {
    shares[k] =
        static_cast<float>(p.routing.factor * (std::exp(logits[chosen[k]] - largest) / sum));
  }
}

void ShareOfSigmoid(const RouteParams& p, const float* logits, const int32_t* chosen,
                    float* shares) {
  double sum = p.routing.renormalize ? p.routing.sum_eps : 1;
  for (int32_t k = 0; p.routing.renormalize && k < p.num_chosen; ++k) {
    sum += Sigmoid(logits[chosen[k]]);
  }
  for (int32_t k = 0; k < p.num_chosen; ++k) {
    shares[k] = static_cast<float>(p.routing.factor * (Sigmoid(logits[chosen[k]]) / sum));
  }
}

}  // namespace

Result<PackedExperts> PackAllExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format, CodeOrders orders,
                                     PackStore* store, ThreadPool* pool) {
  MINISGL_CHECK(!experts.empty(), "no experts");
  PackedExperts packed;
  packed.experts.reserve(experts.size());
  std::optional<SharedBlock> others;  // of the experts behind the first
  for (const auto& parts : experts) {
    if (packed.experts.size() == 1) {
      const size_t each = SharedBlock::BytesOf(packed.experts[0].num_bytes());
      MINISGL_ASSIGN_OR_RETURN(others, SharedBlock::Allocate(each * (experts.size() - 1)));
    }
    const Packing packing(pool, others ? &*others : nullptr);
    MINISGL_ASSIGN_OR_RETURN(PackedMatrix matrix,
                             FindOrPack(parts, format, orders, store, packing));
    MINISGL_CHECK(packed.experts.empty() || (matrix.num_out == packed.experts[0].num_out &&
                                             matrix.num_in == packed.experts[0].num_in),
                  "experts of different shapes");
    packed.experts.push_back(std::move(matrix));
  }
  return packed;
}

void RouteTokens(const RouteParams& p, int64_t begin, int64_t end) {
  std::optional<ValueRouter> router;
  if (!ChoosesByLogits(p)) router.emplace(p);
  const auto share = p.routing.score == RouteScore::kSoftmax ? ShareOfSoftmax : ShareOfSigmoid;
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = p.logits + t * p.num_experts;
    int32_t* chosen = p.experts + t * p.num_chosen;
    if (router) {
      router->Choose(logits, chosen);
    } else {
      LargestValues(logits, p.num_chosen, chosen).Offer(0, p.num_experts);
    }
    float* shares = p.shares + t * p.num_chosen;
    share(p, logits, chosen, shares);
    for (int32_t k = 0; p.expert_scale != nullptr && k < p.num_chosen; ++k) {
      shares[k] *= p.expert_scale[chosen[k]];
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
