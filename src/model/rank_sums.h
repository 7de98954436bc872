// Sums over ranks of what a decoder's parts compute. The sum of a part's output may be owed until
// the norm behind the part, which then runs with it as one operation.
#pragma once

#include <cstdint>
#include <optional>

#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::model {

class RankSums {
 public:
  // Sums vectors of the hidden size. With one rank nothing is summed. All must outlive it.
  RankSums(const ModelConfig& config, int32_t num_ranks, Ops* ops)
      : config_(config), num_ranks_(num_ranks), ops_(ops) {}

  // A pass over the layers begins. What one that failed has owed is forgotten.
  void Begin() { owed_.reset(); }
  // Sums what the ranks have computed of `x` [T, D]. `may_owe`: at the latest with the next
  // RunNorm, whose x it is, or with Settle. REQUIRES that nothing is owed.
  void Reduce(ActivationPtr x, int64_t num_tokens, bool may_owe = false);
  void Settle();
  bool is_owed() const { return owed_.has_value(); }

  // A norm, with the sum of its x if that is owed.
  void RunNorm(const NormParams& norm);

 private:
  const ModelConfig& config_;
  const int32_t num_ranks_;
  Ops* const ops_;
  std::optional<AllReduceParams> owed_;
};

}  // namespace minisgl::model
