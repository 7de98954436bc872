// See rank_norms.h.
#include "model/rank_norms.h"

#include "minisgl/base/check.h"

namespace minisgl::model {

bool NormalizesStatesOverRanks(const StateConfig& own) {
  return own.num_heads > 0 && own.norm_group > own.inner_width();
}

bool NormalizesOverRanks(const ModelConfig& own) {
  return own.qk_norm == QkNorm::kWhole || (HasStates(own) && NormalizesStatesOverRanks(own.states));
}

void NormOverRanks(std::span<NormParams> norms, int32_t num_ranks, float* mean_squares, Ops* ops) {
  if (norms.empty()) return;
  MINISGL_CHECK(std::ssize(norms) <= kRankNormsMax, "{} norms at a time", norms.size());
  const int64_t num_tokens = norms[0].num_tokens;
  float* part = mean_squares;
  for (NormParams& norm : norms) {
    MINISGL_CHECK(norm.kind == NormKind::kRms, "a norm over ranks that is not of squares alone");
    ops->MeanSquares({.x = norm.x,
                      .out = part,
                      .num_tokens = num_tokens,
                      .width = norm.width,
                      .stride = norm.stride,
                      .share = 1 / static_cast<float>(num_ranks)});
    norm.mean_squares = part;
    part += num_tokens;
  }
  ops->AllReduce({.x = mean_squares, .count = std::ssize(norms) * num_tokens});
  for (const NormParams& norm : norms) ops->Norm(norm);
}

}  // namespace minisgl::model
