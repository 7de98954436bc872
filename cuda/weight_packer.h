// Packs weights into device memory: rows of the parts one after another, in the activations' type.
//
// A matrix of one tensor that is still packed is shared, not packed again: a tied output head is
// the embedding's matrix. For one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/ops.h"
#include "stacked_matrix.h"
#include "staging.h"

namespace minisgl::cuda {

class WeightPacker {
 public:
  using Allocate = std::function<Result<std::shared_ptr<void>>(size_t num_bytes)>;
  // The Status of a copy that failed.
  using Report = std::function<Status(const CudaFailure&)>;

  // `staging` outlives this.
  WeightPacker(DType dtype, Staging* staging, Allocate allocate, Report report)
      : dtype_(dtype),
        staging_(staging),
        allocate_(std::move(allocate)),
        report_(std::move(report)) {}

  // See Ops::PackMatrix and Ops::PackExperts.
  Result<Matrix> Pack(std::span<const WeightTensor> parts);
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts);

 private:
  // A matrix packed from one tensor, which may still be in use.
  struct PackedTensor {
    WeightTensor tensor;
    std::weak_ptr<const void> storage;
  };

  Result<std::shared_ptr<const void>> FindPacked(const WeightTensor& tensor);
  Status Write(const StackedMatrix& matrix, void* device);

  const DType dtype_;
  Staging* const staging_;
  const Allocate allocate_;
  const Report report_;
  std::vector<PackedTensor> shareable_;
};

}  // namespace minisgl::cuda
