// The operations of a decoder. The transformer is written once over this interface; the CPU and
// CUDA each implement it, and naive_ops (double precision, plain loops) is the oracle of both.
//
// Called from one thread, the engine's. Operations run in the order of the calls. ops_params.h, and
// tower_params.h for those of towers, define each operation at its parameters. Implementations may
// rely on the REQUIRES there; callers have checked sizes and ids.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "minisgl/adapter_params.h"
#include "minisgl/base/check.h"
#include "minisgl/base/rendezvous.h"
#include "minisgl/base/status.h"
#include "minisgl/ops_params.h"
#include "minisgl/tensor/tensor_view.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/tensor/weight_tensor.h"
#include "minisgl/tower_params.h"

namespace minisgl {

struct HostExpertsParams;

class Ops {
 public:
  virtual ~Ops() = default;

  // For messages: "cpu (avx512, 2 threads)".
  virtual std::string Name() const = 0;

  // The type of all activations except the residual stream and the logits, which are f32.
  virtual DType activation_dtype() const { return DType::kF32; }

  // The orders in which RopeKvWrite stores the keys and values of a layer, whose slots are
  // contiguous.
  virtual KvOrders OrdersOf(const KvLayer& kv) const {
    static_cast<void>(kv);
    return {};
  }

  // `num_bytes` of zeroed device memory, 64-byte aligned, freed with the last copy of the pointer.
  // kOutOfMemory.
  virtual Result<std::shared_ptr<void>> Allocate(size_t num_bytes) = 0;
  // Copies host memory to the device. `src` may change after the call.
  virtual Status Upload(void* dst, const void* src, size_t num_bytes) {
    if (num_bytes > 0) std::memcpy(dst, src, num_bytes);
    return Status();
  }

  // Waits until operations that are queued have ended, so that memory which they use may be freed.
  virtual Status Finish() { return Status(); }

  // Concatenates the matrices `parts` (each [out_i, in], dense or quantized) to one [sum out_i,
  // in], converts it to `format` (rounding to nearest) and packs it for Linear. A device stores
  // everything in its activation dtype. kOutOfMemory.
  virtual Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                                    const WeightFormat& format) = 0;
  // Runs weights.CheckNumbers() on the threads that pack. Packing does not call it.
  virtual Status CheckNumbers(const WeightTensor& weights) { return weights.CheckNumbers(); }
  // True if most weights are found as an earlier start packed them, so that PackMatrix reads little
  // of what it is given.
  virtual bool HasPackedWeights() const { return false; }
  // Packs `table` [V, D] for Embedding. May share storage with PackMatrix of the same tensor (tied
  // output head).
  virtual Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) = 0;

  // Packs one matrix for each expert from its parts, joined as by PackMatrix. REQUIRES experts of
  // equal shape.
  virtual Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                             const WeightFormat& format) = 0;

  // PackMatrix of dense matrices.
  Result<Matrix> PackMatrix(std::span<const TensorView> parts, const WeightFormat& format) {
    return PackMatrix(ToWeightTensors(parts), format);
  }

  virtual void Embedding(const EmbeddingParams& params) = 0;
  virtual void Norm(const NormParams& params) = 0;
  virtual void Linear(const LinearParams& params) = 0;
  // Runs the parts one after another, unless an implementation fuses them.
  virtual void FusedLinear(const FusedLinearParams& params) { RunParts(params); }
  // True if FusedLinear adds products of `num_tokens` tokens to the residual stream without another
  // pass over it. Callers then let it add; otherwise the norm behind the product does.
  virtual bool AddsInLinear(int64_t num_tokens) const {
    static_cast<void>(num_tokens);
    return false;
  }
  virtual void RopeKvWrite(const RopeKvWriteParams& params) = 0;
  virtual void Attention(const AttentionParams& params) = 0;
  virtual void Activate(const ActivateParams& params) = 0;
  virtual void GatherRows(const GatherRowsParams& params) = 0;
  virtual void Softcap(const SoftcapParams& params) = 0;
  // Operations of models that read pictures. Implementations without them refuse pictures.
  virtual void PlaceRows(const PlaceRowsParams& params) {
    MINISGL_CHECK(false, "{} places no {} rows", Name(), params.num_rows);
  }
  virtual void MixRotary(const MixRotaryParams& params) {
    MINISGL_CHECK(false, "{} mixes no positions of {} tokens", Name(), params.num_tokens);
  }
  virtual void Route(const RouteParams& params) = 0;
  virtual void ExpertLinear(const ExpertLinearParams& params) = 0;
  virtual void CombineExperts(const CombineExpertsParams& params) = 0;
  // Operations of devices whose experts are in the host's memory (host_experts.h). The output may
  // be read, and the next BeginHostExperts called, after EndHostExperts. Other operations run in
  // between.
  virtual void BeginHostExperts(const HostExpertsParams& params) {
    static_cast<void>(params);
    MINISGL_CHECK(false, "{} has no experts on another memory's side", Name());
  }
  virtual void EndHostExperts() { MINISGL_CHECK(false, "{} has no such experts", Name()); }
  // An operation of latent attention. Implementations without it refuse such models.
  virtual void HeadLinear(const HeadLinearParams& params) {
    static_cast<void>(params);
    MINISGL_CHECK(false, "{} has no latent attention", Name());
  }
  // An operation of adapters. Implementations without it refuse them.
  virtual void LowRank(const LowRankParams& params) {
    MINISGL_CHECK(false, "{} has no adapters of {} groups", Name(), params.groups.size());
  }
  // True if adapters are in slots: the two below are used then, and not LowRank.
  virtual bool HasAdapterSlots() const { return false; }
  virtual void SlotLowRank(const SlotLowRankParams& params) {
    MINISGL_CHECK(false, "{} has no slots of adapters for {} rows", Name(), params.num_rows);
  }
  virtual void SlotEmbeddings(const SlotEmbeddingParams& params) {
    MINISGL_CHECK(false, "{} has no slots of adapters for {} tokens", Name(), params.num_tokens);
  }
  virtual void Sample(const SampleParams& params) = 0;
  // Operations of layers with a state.
  virtual void ShortConv(const ShortConvParams& params) {
    MINISGL_CHECK(false, "{} has no convolution of {} channels", Name(), params.width);
  }
  virtual void Recurrence(const RecurrenceParams& params) {
    MINISGL_CHECK(false, "{} has no recurrence of {} heads", Name(), params.num_heads);
  }

  // Operations of towers.
  virtual void SegmentAttention(const SegmentAttentionParams& params) {
    MINISGL_CHECK(false, "{} has no attention in {} segments", Name(), params.num_segments);
  }
  virtual void MixRows(const MixRowsParams& params) {
    MINISGL_CHECK(false, "{} has no sums of {} rows", Name(), params.num_per_row);
  }
  virtual void Clamp(const ClampParams& params) {
    MINISGL_CHECK(false, "{} has no bounds of {} values", Name(), params.count);
  }

  // True if GatherColumns gives the columns to all ranks, false if to the first alone.
  virtual bool GathersOnAllRanks() const { return false; }
  // Operations of several ranks. Implementations without them run one rank.
  virtual void AllReduce(const AllReduceParams& params) {
    MINISGL_CHECK(false, "{} has no sum of {} elements over ranks", Name(), params.count);
  }
  virtual void AllReduceNorm(const AllReduceNormParams& params) {
    AllReduce(params.sum);
    Norm(params.norm);
  }
  virtual void MeanSquares(const MeanSquaresParams& params) {
    MINISGL_CHECK(false, "{} has no mean of {} squares over ranks", Name(), params.width);
  }
  virtual void GatherColumns(const GatherColumnsParams& params) {
    MINISGL_CHECK(false, "{} has no {} columns of ranks", Name(), params.width);
  }

  // Bytes that operations have allocated for their own use, not counting Allocate.
  virtual uint64_t scratch_bytes() const { return 0; }

 protected:
  void RunParts(const FusedLinearParams& params) {
    const LinearParams& linear = params.linear;
    if (params.norm != nullptr) Norm(*params.norm);
    Linear(linear);
    RunPartsBehind(params);
  }
  // The parts behind the product.
  void RunPartsBehind(const FusedLinearParams& params) {
    const LinearParams& linear = params.linear;
    if (params.activation != nullptr) Activate(*params.activation);
    if (params.residual == nullptr) return;
    Norm({.x = linear.out,
          .residual = params.residual,
          .weight = nullptr,
          .out = nullptr,
          .num_tokens = linear.num_tokens,
          .width = linear.weight->num_out,
          .eps = 0,
          .x_scale = params.residual_scale});
  }
};

// Identity of the weights that are packed, for files that store packed weights.
struct PackSource {
  std::string key;         // other weights have another key
  WeightFormat format;     // of the matrices that are packed
  bool is_public = false;  // all users may read the weights
  // Returns false if the weights have changed since `key` was made. Thread-safe. Null: they cannot
  // change.
  std::function<bool()> holds;
};

// One of several ranks in the memory of this process.
struct HostRank {
  int32_t index = 0;
  std::shared_ptr<Rendezvous> rendezvous;  // of all ranks; null: there is one rank

  int32_t count() const { return rendezvous == nullptr ? 1 : rendezvous->num_ranks(); }
};

// The implementation of src/cpu: SIMD kernels chosen at run time.
struct CpuOpsConfig {
  int num_threads = 1;
  std::string target;        // name of an instruction set; "": the best of this processor
  bool pin_threads = false;  // bind each thread except the caller's to its own core
  std::string pack_cache;    // directory that stores packed weights for the next start; "": none
  PackSource pack_source;    // of the weights that will be packed
  HostRank rank;
  std::vector<int> cpus;  // logical CPUs of each thread except the caller's; empty: all
};
Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsConfig& config);

// Names of instruction sets (CpuOpsConfig::target), the best first.
struct CpuKernels {
  std::vector<std::string> usable;  // this build has kernels for them, and this processor runs them
  std::vector<std::string> not_built;  // the build was configured without them
};
CpuKernels CpuKernelsOfBuild();

// True if products with codes of 4 bits, or with weights quantized to int8, in matrices of `format`
// round their inputs to int8 on `target` (CpuOpsConfig). False if there is no such target.
bool CpuRoundsInputsOfCodes(const std::string& target, const WeightFormat& format);
// The same for a checkpoint's 8-bit integers without zero points.
bool CpuRoundsInputsOfIntegers(const std::string& target, const WeightFormat& format);
// True if products with 8-bit integers whose format asks for inputs of int8
// (QuantizedWeights::int8_inputs), in matrices of `format`, round them on `target`.
bool CpuRoundsInt8Inputs(const std::string& target, const WeightFormat& format);
// True if stored codes of 5 and 6 bits are packed as 6 bits on `target`, whatever the type of
// weights; false if they may take 8.
bool CpuPacks6Bits(const std::string& target);
// Returns the CPU target, by name, that is faster than the default on this machine at steps of one
// or few rows with weights of `format`; "" if there is none.
std::string CpuTargetForFewRows(const WeightFormat& format);

// Upper bounds on a step.
struct CpuScratchLimits {
  int num_threads = 1;
  WeightFormat weight_format;
  int64_t max_tokens = 0;      // T
  int64_t max_logit_rows = 0;  // N
  int64_t vocab_size = 0;
  int64_t max_inputs = 0;  // largest `in` of a matrix applied to every token
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;      // 0: head_dim
  int64_t num_chosen = 0;     // experts of a token; 0: the model has none
  int64_t expert_inputs = 0;  // `in` of the experts' second matrix, applied to T * num_chosen rows
  int64_t head_inputs = 0;    // `in` of HeadLinear, applied to T * num_heads rows; 0: none
};
// Upper bound on scratch_bytes() for any target, not counting per-token index lists (a few bytes
// per token). nullopt if it exceeds what a machine can hold.
std::optional<uint64_t> CpuScratchBytes(const CpuScratchLimits& limits);

// Upper bound on what scratch_bytes() has for SegmentAttention of `num_tokens` tokens in at most
// `num_segments` segments. nullopt if it exceeds what a machine can hold.
std::optional<uint64_t> CpuSegmentAttentionBytes(int num_threads, int64_t num_tokens,
                                                 int64_t num_segments, int64_t num_heads,
                                                 int64_t head_dim);

// The oracle, src/cpu/naive_ops.cc: sums in double precision, one thread, no SIMD. Activations,
// keys and values are rounded to `activation_dtype`, to be comparable with a device of that type.
// Several ranks REQUIRE f32.
std::unique_ptr<Ops> MakeNaiveOps(DType activation_dtype = DType::kF32, const HostRank& rank = {});

}  // namespace minisgl
