// The matrix products of cuBLASLt in plain loops, queued through an EmulatedCudaApi: sums in double
// in one order, rounded once to the type of the output. Like cuBLASLt, it refuses a product in a
// capture whose shape it did not see before, and products of e4m3 that are not as its manual
// requires (cublasLtMatmul, "To use FP8 kernels", and "Scaling factors layouts").
#pragma once

#include <array>
#include <cstdint>
#include <set>

#include "cuda_api.h"
#include "emulator/emulated_cuda_api.h"

namespace minisgl::cuda::emulator {

class EmulatedMatmul : public MatmulLibrary {
 public:
  explicit EmulatedMatmul(EmulatedCudaApi* api) : api_(api) {}

  // Makes the n-th product from now on (1: the next) return `status` without computing.
  void FailAt(int n, Status status);
  int num_products() const { return num_products_; }

  Status Prepare(const MatmulShape& shape) override;
  Status Matmul(const MatmulShape& shape, const void* x, const void* weight, void* out,
                CudaStream stream) override;
  Status ScaledMatmul(const MatmulShape& shape, const ScaledOperands& in, void* out,
                      CudaStream stream) override;
  bool HasScaledMatmul() const override { return has_scaled_; }
  void LackScaledMatmul() { has_scaled_ = false; }
  int num_scaled_products() const { return num_scaled_products_; }
  void SetCapturing(bool capturing) override { capturing_ = capturing; }

 private:
  EmulatedCudaApi* api_;
  int fail_in_ = 0;
  Status failure_;
  int num_products_ = 0, num_scaled_products_ = 0;
  bool has_scaled_ = true;
  bool capturing_ = false;
  std::set<std::array<int64_t, 4>> seen_;  // T, N, K and scales of the products prepared so far
};

}  // namespace minisgl::cuda::emulator
