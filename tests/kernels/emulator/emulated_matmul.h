// The matrix products of cuBLASLt in plain loops, queued through an EmulatedCudaApi: sums in double
// in one order, rounded once to the type of the output.
#pragma once

#include <vector>

#include "cuda_api.h"
#include "emulator/emulated_cuda_api.h"

namespace minisgl::cuda::emulator {

class EmulatedMatmul : public MatmulLibrary {
 public:
  explicit EmulatedMatmul(EmulatedCudaApi* api) : api_(api) {}

  // Makes the n-th product from now on (1: the next) return `status` without computing.
  void FailAt(int n, Status status);
  int num_prepared() const { return num_prepared_; }
  int num_products() const { return num_products_; }

  Status Prepare(const MatmulShape& shape) override;
  Status Matmul(const MatmulShape& shape, const void* x, const void* weight, void* out,
                CudaStream stream) override;

 private:
  EmulatedCudaApi* api_;
  int fail_in_ = 0;
  Status failure_;
  int num_prepared_ = 0, num_products_ = 0;
};

}  // namespace minisgl::cuda::emulator
