// See naive_low_rank.h.
#include "cpu/naive_low_rank.h"

#include <vector>

#include "cpu/naive_values.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::cpu {
namespace {

double Weight(const LowRankMatrices& matrices, const void* from, int64_t index) {
  return Get(ConstActivationPtr(from, matrices.dtype), index);
}

// u of one row.
std::vector<double> Shrink(const LowRankParams& p, const LowRankMatrices& matrices, int64_t row,
                           const float* inner) {
  std::vector<double> u;
  for (int64_t k = 0; k < matrices.num_ranks; ++k) {
    double sum = p.x == nullptr ? double{inner[k]} : 0;
    for (int64_t i = 0; p.x != nullptr && i < matrices.num_in; ++i) {
      sum += Weight(matrices, matrices.a, k * matrices.num_in + i) *
             Get(p.x, row / p.rows_per_input * matrices.num_in + i);
    }
    u.push_back(sum);
  }
  return u;
}

}  // namespace

void NaiveLowRank(const LowRankParams& p) {
  const float* inner = p.inner;
  for (const LowRankGroup& group : p.groups) {
    const LowRankMatrices& matrices = *group.matrices;
    const int64_t stride = p.out_stride == 0 ? matrices.num_out : p.out_stride;
    for (const int32_t row : group.rows) {
      const std::vector<double> u = Shrink(p, matrices, row, inner);
      inner += matrices.num_ranks;
      std::vector<double> sums(static_cast<size_t>(matrices.num_out));
      for (const LowRankPart& part : matrices.parts) {
        for (int64_t o = 0; o < part.num_out; ++o) {
          const int64_t first = o / kLowRankTile * part.rank * kLowRankTile + o % kLowRankTile;
          for (int64_t k = 0; k < part.rank; ++k) {
            sums[static_cast<size_t>(part.first_out + o)] +=
                Weight(matrices, part.b, first + k * kLowRankTile) * double{part.scale} *
                u[static_cast<size_t>(part.first_rank + k)];
          }
        }
      }
      for (int64_t o = 0; o < matrices.num_out; ++o) {
        double value = Get(p.out, row * stride + o);
        if (matrices.factor != nullptr) value *= double{matrices.factor[o]};
        if (matrices.offset != nullptr) value += double{matrices.offset[o]};
        Put(p.out, row * stride + o, value + sums[static_cast<size_t>(o)]);
      }
    }
  }
}

}  // namespace minisgl::cpu
