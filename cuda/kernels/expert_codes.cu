// The matrix products of experts whose weights are codes (code_tile.cuh): the tiles of
// expert_linear.cu, and its sums in its order, so that results have the bits of a product with the
// expanded weights.
//
// Traffic: the codes and scales of the experts in use, again for each further tile, and x and the
// results as in expert_linear.cu.
#include "kernels/code_tile.cuh"
#include "kernels/dispatch.h"
#include "kernels/expert_tiles.cuh"
#include "kernels/kernels.h"

namespace minisgl::cuda {
namespace expert_codes {
namespace {

using device::Shared;
using device::SharedArena;

struct ExpertCodesKernelParams {
  ExpertLinearKernelParams linear;
  CodedRows rows;  // of all experts
};

// Grid (upper bound on the tiles, N / 64), block 128. Shared memory: CodesShape::kBytes. Traffic:
// see the head of this file.
template <typename T, RowCodes KIND, CodeMath MATH, int ROWS16>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kTileThreads, 3)
    ExpertCodesKernel(MINISGL_GRID_CONSTANT ExpertCodesKernelParams params) {
  const ExpertLinearKernelParams& p = params.linear;
  constexpr int kRows = CodesShape<ROWS16>::kRows;
  SharedArena arena;
  CodesTile<ExpertCodesKernelParams, T, KIND, MATH, ROWS16> product(params, &arena);
  const Shared<int> pairs = arena.Take<int>(kRows);
  const Shared<unsigned> same = arena.Take<unsigned>(kTileThreads / device::kWarpSize);
  device::GridRelease();
  device::GridWait();
  // Every thread meets the others there, so that the table of numbers is written.
  const int expert =
      p.experts != nullptr ? TileOfLeader<kRows>(p, pairs, same) : TileOfList<kRows>(p, pairs);
  if (expert < 0) return;
  const int first_out = static_cast<int>(blockIdx.y) * kTileOuts;
  const int out = first_out + static_cast<int>(threadIdx.x) / 2;
  product.SetWeights(out < p.num_out ? int64_t{expert} * p.num_out + out : -1);
  product.SetRows([&](int i) -> const T* {
    const int pair = pairs[i];
    if (pair < 0) return nullptr;
    return static_cast<const T*>(p.x) + int64_t{pair / p.pairs_per_row} * p.num_in;
  });
  float sums[ROWS16][2][4] = {};
  product.Multiply(sums);
  const int thread = static_cast<int>(threadIdx.x);
  StoreTile<T, ROWS16>(p, expert, first_out + thread / device::kWarpSize * kOutsOfWarp,
                       thread % device::kWarpSize, pairs, sums);
}

}  // namespace
}  // namespace expert_codes

CudaError LaunchExpertCodes(const LaunchContext& context, const ExpertLinearParams& params,
                            const CodedRows& rows, const ExpertWorkspace& workspace) {
  using namespace expert_codes;  // NOLINT: this file's own
  if (params.num_tokens * params.num_chosen == 0) return kCudaSuccess;
  MINISGL_CHECK(rows.order.warps == 1, "lines of groups that are no neighbours");
  ExpertLaunch launch = PrepareExperts(context, params, nullptr, workspace);
  if (launch.error != kCudaSuccess) return launch.error;
  launch.shape.shared_bytes = launch.large ? CodesShape<4>::kBytes : CodesShape<1>::kBytes;
  const ExpertCodesKernelParams p = {.linear = launch.params, .rows = rows};
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    return DispatchCodes(rows, [&]<RowCodes KIND>() {
      using enum CodeMath;
      const auto of_math = [&]<CodeMath MATH>() {
        return launch.large ? Launch(context, launch.shape, ExpertCodesKernel<T, KIND, MATH, 4>, p)
                            : Launch(context, launch.shape, ExpertCodesKernel<T, KIND, MATH, 1>, p);
      };
      if constexpr (KIND == RowCodes::kTable4) {
        const CodeMath math = MathOf(rows, params.out.dtype);
        if (math == kCounting) return of_math.template operator()<kCounting>();
        if (math == kE2M1) return of_math.template operator()<kE2M1>();
      }
      return of_math.template operator()<kFloat>();
    });
  });
}

}  // namespace minisgl::cuda
