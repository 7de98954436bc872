// See rank_sums.h.
#include "model/rank_sums.h"

#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::model {

void RankSums::Reduce(ActivationPtr x, int64_t num_tokens, bool may_owe) {
  if (num_ranks_ == 1) return;
  MINISGL_CHECK(!owed_, "a second sum over ranks while one is owed");
  owed_ = {.x = x, .count = num_tokens * config_.hidden_size};
  // If parts begin from the same norm, another part follows before a norm.
  const NormPlacement placement = config_.norm_placement;
  const bool adds_first =
      placement == NormPlacement::kParallel || placement == NormPlacement::kAfterSum;
  if (!may_owe || adds_first) Settle();
}

void RankSums::Settle() {
  if (const auto sum = std::exchange(owed_, std::nullopt)) ops_->AllReduce(*sum);
}

void RankSums::RunNorm(const NormParams& norm) {
  const std::optional<AllReduceParams> sum = std::exchange(owed_, std::nullopt);
  if (!sum) return ops_->Norm(norm);
  MINISGL_CHECK(norm.x.data == sum->x.data, "a norm of something else before a sum over ranks");
  ops_->AllReduceNorm({.sum = *sum, .norm = norm});
}

}  // namespace minisgl::model
