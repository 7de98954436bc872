// Products of type bf16 with codes in whole lines (gemv_code_lines.cuh).
#include "kernels/gemv_code_lines.cuh"

namespace minisgl::cuda {
namespace gemv_codes {

bool LaunchCodeLines(const LaunchContext& context, const LaunchShape& shape,
                     const CodeLinesParams& p, int64_t tile_tokens, int64_t tile_rows,
                     CudaError* error) {
  return LaunchCodeLinesOf<device::bf16>(context, shape, p, tile_tokens, tile_rows, error);
}

}  // namespace gemv_codes
}  // namespace minisgl::cuda
