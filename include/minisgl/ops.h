// The operations a decoder is made of. The transformer is written once over this interface; the CPU
// and CUDA each implement it, and naive_ops (double precision, plain loops) is the oracle of both.
//
// Called from one thread, the engine's. Operations run in the order they are called. Each names its
// params in ops_params.h, which says what it computes. Implementations may assume what REQUIRES
// there says; sizes and ids were checked before.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/ops_params.h"
#include "minisgl/tensor/tensor_view.h"
#include "minisgl/tensor/weight_format.h"

namespace minisgl {

class Ops {
 public:
  virtual ~Ops() = default;

  // For messages: "cpu (avx512, 2 threads)".
  virtual std::string Name() const = 0;

  // Of all activations but the residual stream and the logits.
  virtual DType activation_dtype() const { return DType::kF32; }

  // `num_bytes` of zeroed memory of the device, 64-byte aligned; freed with the last copy of the
  // pointer. kOutOfMemory where there is none.
  virtual Result<std::shared_ptr<void>> Allocate(size_t num_bytes) = 0;
  // Copies host memory to the device and returns once `src` may change.
  virtual Status Upload(void* dst, const void* src, size_t num_bytes) {
    if (num_bytes > 0) std::memcpy(dst, src, num_bytes);
    return Status();
  }

  // The matrices `parts` (each [out_i, in], any dtype) one below another as one [sum out_i, in] of
  // `format` (converted with rounding to nearest where they differ), packed for Linear. A device
  // keeps everything in its activation dtype.
  virtual Result<Matrix> PackMatrix(std::span<const TensorView> parts,
                                    const WeightFormat& format) = 0;
  // [V, D] for Embedding. An implementation may share storage with PackMatrix of the same view
  // (tied head).
  virtual Result<Matrix> PackEmbedding(const TensorView& table, const WeightFormat& format) = 0;

  // For each expert its `parts`, as PackMatrix would join them. REQUIRES experts of one shape.
  virtual Result<ExpertMatrices> PackExperts(std::span<const std::vector<TensorView>> experts,
                                             const WeightFormat& format) = 0;

  virtual void Embedding(const EmbeddingParams& params) = 0;
  virtual void Norm(const NormParams& params) = 0;
  virtual void Linear(const LinearParams& params) = 0;
  virtual void RopeKvWrite(const RopeKvWriteParams& params) = 0;
  virtual void Attention(const AttentionParams& params) = 0;
  virtual void Activate(const ActivateParams& params) = 0;
  virtual void GatherRows(const GatherRowsParams& params) = 0;
  virtual void Softcap(const SoftcapParams& params) = 0;
  virtual void Route(const RouteParams& params) = 0;
  virtual void ExpertLinear(const ExpertLinearParams& params) = 0;
  virtual void CombineExperts(const CombineExpertsParams& params) = 0;
  virtual void Sample(const SampleParams& params) = 0;

  // Memory that operations took for themselves as they ran, beside what Allocate gave. 0 where they
  // take none.
  virtual uint64_t scratch_bytes() const { return 0; }
};

// What weights are packed from, for a file that keeps them.
struct PackSource {
  std::string key;              // changes with any byte of it
  bool is_public = false;       // everybody may read it
  std::function<bool()> holds;  // whether it is as it was; null: it is. For any thread.
};

// src/cpu: SIMD kernels chosen at run time. `target`: "" (the best here) or a lower instruction set
// by name. `pack_cache`: a directory that keeps packed weights for the next start ("": none);
// `pack_source` stands for what they are made from.
struct CpuOpsConfig {
  int num_threads = 1;
  std::string target;
  bool pin_threads = false;  // each thread but the caller's to a core of its own
  std::string pack_cache;
  PackSource pack_source;
};
Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsConfig& config);

// The largest step of a model.
struct CpuScratchLimits {
  int num_threads = 1;
  WeightFormat weight_format;
  int64_t max_tokens = 0;      // T
  int64_t max_logit_rows = 0;  // N
  int64_t vocab_size = 0;
  int64_t max_inputs = 0;  // of a matrix that every token is multiplied with
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t num_chosen = 0;     // experts of a token, 0: the model has none
  int64_t expert_inputs = 0;  // of their second matrix: one row a choice
};
// At most what scratch_bytes() comes to, on any target, but for lists of some bytes a token.
// Nothing where that is past what a machine can hold.
std::optional<uint64_t> CpuScratchBytes(const CpuScratchLimits& limits);

// src/cpu/naive_ops.cc: every sum in double, one thread, no SIMD. `activation_dtype`: what a
// device's activations, keys and values are rounded to, so that it can be compared with this.
std::unique_ptr<Ops> MakeNaiveOps(DType activation_dtype = DType::kF32);

}  // namespace minisgl
