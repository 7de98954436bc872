// Packs weights into device memory: rows of the parts one after another, in the activations' type
// or as codes (coded_matrix.h).
//
// A matrix of one tensor that is still packed is shared, not packed again: a tied output head is
// the embedding's matrix. For one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "code_batch.h"
#include "coded_matrix.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/ops.h"
#include "stacked_matrix.h"
#include "staging.h"

namespace minisgl::cuda {

class WeightPacker {
 public:
  using Allocate = std::function<Result<std::shared_ptr<void>>(size_t num_bytes)>;
  // The Status of a copy that failed.
  using Report = std::function<Status(const CudaFailure&)>;
  // The order of the codes of a matrix that products of few rows read.
  using OrderOf = std::function<CodeOrder(const Matrix&, RowCodes)>;

  // Matrices whose inputs products round get scales for that, too (ScaledMatrix), while `scales` is
  // true.
  void ScaleInputs(bool scales) { scales_inputs_ = scales; }

  // `staging` outlives this.
  WeightPacker(DType dtype, Staging* staging, Allocate allocate, Report report, OrderOf order_of)
      : dtype_(dtype),
        staging_(staging),
        allocate_(std::move(allocate)),
        report_(std::move(report)),
        order_of_(std::move(order_of)) {}

  // See Ops::PackMatrix and Ops::PackExperts. Matrices of kStored that cannot be kept as codes are
  // expanded.
  Result<Matrix> Pack(std::span<const WeightTensor> parts, const WeightFormat& format);
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format);

  // How many matrices of codes were expanded though codes are kept, by the reason.
  const std::map<std::string, int64_t>& expanded() const { return expanded_; }

 private:
  // A matrix packed from one tensor, which may still be in use.
  struct PackedTensor {
    WeightTensor tensor;
    Quantization quantization;  // kNone: expanded
    std::weak_ptr<const void> storage;
  };
  // Some or all rows of a matrix: its parts one below the other.
  using Rows = std::vector<WeightRow>;

  Result<std::shared_ptr<const void>> FindPacked(const WeightTensor& tensor);
  Result<std::shared_ptr<const void>> FindCodes(const WeightTensor& tensor,
                                                Quantization quantization);
  Result<bool> HasCodes(const CodedMatrix& matrix, const WeightTensor& tensor,
                        Quantization quantization);
  Status Write(const StackedMatrix& matrix, void* device);
  // The codes of all rows of `experts`, each stacked; null if they are not kept. One is a matrix
  // that all tokens have.
  Result<std::shared_ptr<const CodedMatrix>> PackCodes(
      std::span<const std::span<const WeightTensor>> experts, Quantization quantization);
  Status WriteRun(const CodedRun& run, const Rows& rows, int64_t num_in, bool quantizes,
                  void* memory);
  Status PackScales(std::span<const WeightTensor> parts, CodedMatrix* matrix);
  ThreadPool* pool();

  const DType dtype_;
  Staging* const staging_;
  const Allocate allocate_;
  const Report report_;
  const OrderOf order_of_;
  bool scales_inputs_ = false;
  std::vector<PackedTensor> shareable_;
  std::map<std::string, int64_t> expanded_;
  std::unique_ptr<ThreadPool> pool_;  // of codes; made at first use
};

}  // namespace minisgl::cuda
