// Ops on the CPU: divides each operation into chunks for the thread pool and calls the kernels of
// the chosen instruction set (kernels.h). The division of work never changes a result.
#include <algorithm>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "cpu/attention_plan.h"
#include "cpu/coded_product.h"
#include "cpu/experts.h"
#include "cpu/kernels/attention_bf16.h"
#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/kernels.h"
#include "cpu/low_rank.h"
#include "cpu/memory.h"
#include "cpu/pack_store.h"
#include "cpu/packed_matrix.h"
#include "cpu/rank_collectives.h"
#include "cpu/sampler.h"
#include "cpu/segment_attention.h"
#include "cpu/states.h"
#include "cpu/token_rows.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/ops.h"

namespace minisgl::cpu {
namespace {

// Elements in a chunk of an operation that is linear in its elements: a few microseconds of work,
// against about one microsecond to hand a chunk to another thread.
constexpr int64_t kChunkElements = 8192;
constexpr int64_t kCacheLine = 64;
// Minimum number of rows of x in a chunk of a matrix product: enough that widening a block of
// weights is cheap.
constexpr int64_t kLinearRowsMin = 8 * kRowsMax;

// Maximum number of groups of an expert item. Gathering its rows costs about an eighth of the
// product of one group (8 bytes copied against 64 multiply-adds for each element).
constexpr int64_t kExpertGroupsMax = 8;
// Items of work for each thread: a thread that loses its core delays the end by an eighth of its
// share.
constexpr int64_t kItemsPerThread = 8;

struct PerThread {
  FloatBuffer attention;
  FloatBuffer linear;
  FloatBuffer expanded;  // weights of a matrix that is kept as codes
  Sampler sampler;
};

class CpuOps : public Ops {
 public:
  CpuOps(CpuTarget target, const CpuOpsConfig& config)
      : target_(target),
        elementwise_(ElementwiseKernelGetters()[static_cast<size_t>(target)]()),
        write_kv_(WriteKvGetters()[static_cast<size_t>(target)]()),
        attention_(AttentionKernelGetters()[static_cast<size_t>(target)]()),
        states_(StateKernelGetters()[static_cast<size_t>(target)]()),
        segments_(SegmentKernelGetters()[static_cast<size_t>(target)]()),
        low_rank_(LowRankKernelGetters()[static_cast<size_t>(target)]()),
        rank_(config.rank),
        pool_(config.num_threads, config.pin_threads, config.cpus),
        threads_(static_cast<size_t>(pool_.num_threads())) {
    if (config.pack_cache.empty()) return;
    const CodeOrders orders = CodeOrdersOf(target, config.pack_source.format.dtype);
    store_ = std::make_unique<PackStore>(config.pack_cache, config.pack_source, orders);
  }

  std::string Name() const override {
    const int count = pool_.num_threads();
    return fmt::format("cpu ({}, {} thread{})", CpuTargetName(target_), count,
                       count == 1 ? "" : "s");
  }

  KvOrders OrdersOf(const KvLayer& kv) const override {
    const auto head_dim = static_cast<int32_t>(kv.slot_stride);
    const auto value_dim = static_cast<int32_t>(kv.value_slot_stride());
    if (KeepsPairs(kv, head_dim, value_dim) || KeepsCodePairs(kv, head_dim, value_dim)) {
      return {KvOrder::kColumnPairs, KvOrder::kRowPairs};
    }
    const bool in_columns = kv.base.dtype == DType::kF32 && KeyLayout(kv, head_dim).transposed;
    return {in_columns ? KvOrder::kColumns : KvOrder::kRows, KvOrder::kRows};
  }

  Result<std::shared_ptr<void>> Allocate(size_t num_bytes) override {
    return AllocateZeroed(num_bytes);
  }

  Status CheckNumbers(const WeightTensor& weights) override;
  bool HasPackedWeights() const override { return store_ != nullptr && store_->has_matrices(); }
  Result<Matrix> PackMatrix(std::span<const WeightTensor> parts,
                            const WeightFormat& format) override {
    return Pack(parts, format, /*is_table=*/false);
  }
  Result<Matrix> PackEmbedding(const WeightTensor& table, const WeightFormat& format) override {
    return Pack({&table, 1}, format, /*is_table=*/true);
  }
  Result<ExpertMatrices> PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                     const WeightFormat& format) override;

  void Embedding(const EmbeddingParams& params) override;
  void Linear(const LinearParams& params) override;
  void Attention(const AttentionParams& params) override;
  void GatherRows(const GatherRowsParams& params) override;
  void PlaceRows(const PlaceRowsParams& p) override { PlaceHostRows(p); }
  void MixRotary(const MixRotaryParams& p) override { MixHostRotary(p); }
  void ExpertLinear(const ExpertLinearParams& params) override;
  void HeadLinear(const HeadLinearParams& params) override;
  void Sample(const SampleParams& params) override;

  uint64_t scratch_bytes() const override {
    uint64_t sum =
        split_states_.bytes() + prepared_.bytes() + segment_scratch_.bytes() + ranks_.bytes();
    for (const PerThread& one : threads_) {
      sum +=
          one.attention.bytes() + one.linear.bytes() + one.expanded.bytes() + one.sampler.bytes();
    }
    return sum;
  }

  void Norm(const NormParams& params) override {
    ForTokens(params.num_tokens, params.width,
              [&](int64_t begin, int64_t end) { elementwise_.norm(params, begin, end); });
  }
  void Activate(const ActivateParams& params) override {
    ForTokens(params.num_tokens, 4 * params.width,
              [&](int64_t begin, int64_t end) { elementwise_.activate(params, begin, end); });
  }
  void RopeKvWrite(const RopeKvWriteParams& params) override {
    ForTokens(params.num_tokens, 2 * params.token_width(), [&](int64_t begin, int64_t end) {
      elementwise_.rope_kv_write(params, write_kv_, begin, end);
    });
  }
  void Softcap(const SoftcapParams& params) override {
    ForTokens(params.count, 4,
              [&](int64_t begin, int64_t end) { elementwise_.softcap(params, begin, end); });
  }
  void Route(const RouteParams& params) override {
    ForTokens(params.num_tokens, 8 * params.num_experts,
              [&](int64_t begin, int64_t end) { RouteTokens(params, begin, end); });
  }
  void CombineExperts(const CombineExpertsParams& params) override {
    ForTokens(
        params.num_tokens, (params.num_chosen + 1) * params.width,
        [&](int64_t begin, int64_t end) { elementwise_.combine_experts(params, begin, end); });
  }
  void ShortConv(const ShortConvParams& params) override { RunShortConv(params, states_, &pool_); }
  void Recurrence(const RecurrenceParams& p) override { RunRecurrence(p, states_, &pool_); }
  void LowRank(const LowRankParams& p) override { RunLowRank(p, low_rank_, &pool_, &ranks_); }
  void SegmentAttention(const SegmentAttentionParams& params) override {
    RunSegmentAttention(params, segments_, &pool_, &segment_scratch_);
  }
  void MixRows(const MixRowsParams& params) override {
    ForTokens(params.num_rows, params.num_per_row * params.width,
              [&](int64_t begin, int64_t end) { elementwise_.mix_rows(params, begin, end); });
  }
  void Clamp(const ClampParams& params) override {
    ForTokens(params.count, 1,
              [&](int64_t begin, int64_t end) { elementwise_.clamp(params, begin, end); });
  }
  void AllReduce(const AllReduceParams& p) override { SumOverRanks(rank_, p, &pool_); }
  void MeanSquares(const MeanSquaresParams& params) override {
    ForTokens(params.num_tokens, params.width,
              [&](int64_t begin, int64_t end) { elementwise_.mean_squares(params, begin, end); });
  }
  void GatherColumns(const GatherColumnsParams& p) override { GatherFromRanks(rank_, p, &pool_); }

 private:
  // Calls body(begin, end) for ranges of tokens that cost about kChunkElements each. A thread gets
  // neighbouring ranges: they write the same cache lines of a page.
  template <typename Body>
  void ForTokens(int64_t num_tokens, int64_t cost, const Body& body) {
    const int64_t per_chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, cost));
    pool_.ParallelForRanges(CeilDiv(num_tokens, per_chunk), [&](int64_t chunk, int) {
      body(chunk * per_chunk, std::min(num_tokens, (chunk + 1) * per_chunk));
    });
  }

  // The bf16 products for the layer's keys and values; null if attention.cc multiplies in f32.
  const Bf16Products* Bf16ProductsOf(const KvLayer& kv) const {
    if (kv.base.dtype != DType::kBF16 && !kv.has_codes()) return nullptr;
    switch (target_) {
      case CpuTarget::kAmx:
      case CpuTarget::kAmxVnni:
        return AttentionAmxProducts();
      case CpuTarget::kAmxStandIn:
        return AttentionAmxStandInProducts();
      case CpuTarget::kAvx512Bf16:
        return AttentionBf16Products();
      default:
        return nullptr;
    }
  }
  Result<Matrix> Pack(std::span<const WeightTensor> parts, const WeightFormat& format,
                      bool is_table);
  LinearInput Prepare(const LinearKernel& kernel, const float* x, int64_t num_rows, int64_t num_in,
                      int64_t x_stride);
  int64_t GroupsPerItem(int64_t num_groups, int64_t groups_max) const;
  void MultiplyOutputs(const LinearParams& params, const PackedMatrix& weight, int64_t first);
  float* AttentionScratch(const AttentionParams& params, int thread);

  const CpuTarget target_;
  const ElementwiseKernels elementwise_;
  const WriteKv write_kv_;
  const AttentionKernels attention_;
  const StateKernels states_;
  const SegmentKernels segments_;
  const LowRankKernels low_rank_;
  const HostRank rank_;
  ThreadPool pool_;
  std::vector<PerThread> threads_;
  AttentionPlanner attention_planner_;
  FloatBuffer split_states_;
  ExpertPlan expert_plan_;
  FloatBuffer prepared_;
  SegmentScratch segment_scratch_;
  LowRankScratch ranks_;
  std::unique_ptr<PackStore> store_;  // null if packed weights are not kept
  // The last matrix packed from one part, while it is in use. A tied output head and the embedding
  // are packed one right after the other and share one matrix. No other pair does: the made-up
  // weights of benchmarks have the same address too, but each matrix is to be read from memory of
  // its own.
  struct Shareable {
    WeightTensor tensor;
    WeightFormat format;  // that was asked for; of kStored, dense matrices are packed as kNone
    bool is_table = false;
    std::weak_ptr<const PackedMatrix> matrix;
  };
  Shareable last_single_;
};

const PackedMatrix& Packed(const Matrix& matrix) {
  return *static_cast<const PackedMatrix*>(matrix.storage.get());
}

Matrix ToMatrix(std::shared_ptr<const PackedMatrix> packed) {
  const PackedMatrix& matrix = *packed;
  return {matrix.num_out, matrix.num_in, matrix.format.dtype, std::move(packed),
          matrix.format.quantization};
}

Status CpuOps::CheckNumbers(const WeightTensor& weights) {
  constexpr int64_t kOutputs = 256;  // that a thread reads at a time
  std::vector<Status> statuses(static_cast<size_t>(CeilDiv(weights.num_out(), kOutputs)));
  pool_.ParallelFor(std::ssize(statuses), [&](int64_t part, int) {
    const int64_t first = part * kOutputs;
    const int64_t count = std::min(kOutputs, weights.num_out() - first);
    statuses[static_cast<size_t>(part)] = weights.TakeOutputs(first, count).CheckNumbers();
  });
  for (Status& status : statuses) {
    if (!status.ok()) return std::move(status);
  }
  return Status();
}

Result<Matrix> CpuOps::Pack(std::span<const WeightTensor> parts, const WeightFormat& format,
                            bool is_table) {
  const auto last = last_single_.matrix.lock();
  if (last != nullptr && parts.size() == 1 && (is_table || last_single_.is_table)) {
    if (last_single_.tensor.IsSame(parts[0]) && last_single_.format == format) {
      return ToMatrix(last);
    }
  }
  MINISGL_ASSIGN_OR_RETURN(
      PackedMatrix matrix,
      FindOrPackStack(parts, format, CodeOrdersOf(target_, format.dtype), store_.get(), &pool_));
  const auto packed = std::make_shared<const PackedMatrix>(std::move(matrix));
  if (parts.size() == 1) last_single_ = {parts[0], format, is_table, packed};
  return ToMatrix(packed);
}

Result<ExpertMatrices> CpuOps::PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                           const WeightFormat& format) {
  MINISGL_ASSIGN_OR_RETURN(
      PackedExperts packed,
      PackAllExperts(experts, format, CodeOrdersOf(target_, format.dtype), store_.get(), &pool_));
  const PackedMatrix& first = packed.experts[0];
  ExpertMatrices matrices = {
      std::ssize(packed.experts), first.num_out, first.num_in, format.dtype, nullptr,
      format.quantization};
  matrices.storage = std::make_shared<const PackedExperts>(std::move(packed));
  return matrices;
}

void CpuOps::Embedding(const EmbeddingParams& p) {
  if (store_ != nullptr) store_->Finish();  // a forward pass begins: all weights are packed
  const int64_t width = p.table == nullptr ? p.stored->num_in() : p.table->num_in;
  const int64_t num_ids = p.table == nullptr ? p.stored->num_out() : p.table->num_out;
  ForTokens(p.num_tokens, 4 * width, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* out = p.out + t * width;
      const int64_t row = int64_t{p.ids[t]} - p.first_id;
      if (row < 0 || row >= num_ids) {
        std::fill_n(out, width, 0.0f);
        continue;
      }
      if (p.table == nullptr) {
        p.stored->ReadRow(row, out);
      } else {
        Packed(*p.table).ReadRow(row, out);
      }
      if (p.scale == 1.0f) continue;
      for (int64_t i = 0; i < width; ++i) out[i] *= p.scale;
    }
  });
}

void CpuOps::GatherRows(const GatherRowsParams& p) {
  ForTokens(p.num_rows, p.width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(p.x.f32() + p.rows[i] * p.width, p.width, p.out.f32() + i * p.width);
    }
  });
}

// Rounds up to an odd number of cache lines: rows a power of two apart would fall into few sets of
// the first-level cache (and collide in AMD's way predictor).
int64_t PreparedStride(int64_t row_bytes) {
  return (CeilDiv(row_bytes, kCacheLine) | 1) * kCacheLine;
}

// Maximum number of rows of x in a chunk, of `row_bytes` each in the form that the kernel reads: a
// multiple of rows_multiple.
int64_t LinearRowsMax(const LinearKernel& kernel, int64_t row_bytes) {
  const int64_t rows = std::clamp(kernel.chunk_bytes / std::max<int64_t>(1, row_bytes),
                                  kLinearRowsMin, kernel.rows_max);
  return std::max(rows / kernel.rows_multiple, int64_t{1}) * kernel.rows_multiple;
}

// Converts the rows of x, `x_stride` floats apart, once for all outputs to the form that the kernel
// reads.
LinearInput CpuOps::Prepare(const LinearKernel& kernel, const float* x, int64_t num_rows,
                            int64_t num_in, int64_t x_stride) {
  if (kernel.prepare == nullptr) {
    return {reinterpret_cast<const std::byte*>(x), x_stride * static_cast<int64_t>(sizeof(float))};
  }
  const int64_t stride = PreparedStride(kernel.row_bytes(num_in));
  auto* const rows = reinterpret_cast<std::byte*>(
      prepared_.Reserve(static_cast<size_t>(num_rows * stride) / sizeof(float)));
  ForTokens(num_rows, num_in, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      kernel.prepare(x + t * x_stride, num_in, rows + t * stride);
  });
  return {rows, stride};
}

// Groups in one item, at most `groups_max`, so that every thread has several of the items of
// `num_groups` groups.
int64_t CpuOps::GroupsPerItem(int64_t num_groups, int64_t groups_max) const {
  return std::clamp<int64_t>(num_groups / (kItemsPerThread * pool_.num_threads()), 1, groups_max);
}

void CpuOps::Linear(const LinearParams& p) {
  const PackedMatrix& weight = Packed(*p.weight);
  if (weight.stacked.empty()) return MultiplyOutputs(p, weight, 0);
  int64_t first = 0;
  for (const PackedMatrix& part : weight.stacked) {
    MultiplyOutputs(p, part, first);
    first += part.num_out;
  }
}

// Computes the outputs from `first` on, whose weights are `weight`.
void CpuOps::MultiplyOutputs(const LinearParams& p, const PackedMatrix& weight, int64_t first) {
  const LinearKernel kernel = KernelOf(target_, weight);
  const LinearInput x = Prepare(kernel, p.x.f32(), p.num_tokens, weight.num_in, weight.num_in);
  const int64_t out_stride = p.out_stride == 0 ? p.weight->num_out : p.out_stride;
  const int64_t num_groups = CeilDiv(weight.num_out, kGroupWidth);
  const float* const bias = p.bias == nullptr ? nullptr : p.bias + first;
  // Even chunks, multiples of rows_multiple. A thread finishes its groups of one chunk before it
  // begins the next, so that its rows of x stay in the second-level cache, and only weights, which
  // are read in order, come from further away.
  const int64_t num_chunks = CeilDiv(p.num_tokens, LinearRowsMax(kernel, x.stride));
  const int64_t rows =
      CeilDiv(CeilDiv(p.num_tokens, std::max<int64_t>(1, num_chunks)), kernel.rows_multiple) *
      kernel.rows_multiple;
  // A thread gets neighbouring groups: at the end of one group the kernels prefetch the beginning
  // of the next.
  pool_.ParallelForRanges(num_chunks * num_groups, [&](int64_t i, int thread) {
    const int64_t begin = std::min(p.num_tokens, i / num_groups * rows);
    const int64_t group = i % num_groups;
    PerThread& its = threads_[thread];
    MultiplyBlock(target_, kernel,
                  {.x = x.rows + begin * x.stride,
                   .x_stride = x.stride,
                   .weight = &weight,
                   .bias = bias,
                   .out = p.out.f32() + begin * out_stride + first + group * kGroupWidth,
                   .out_stride = out_stride,
                   .num_rows = std::min(rows, p.num_tokens - begin),
                   .group = group,
                   .scratch = its.linear.Reserve(kLinearScratchFloats)},
                  &its.expanded);
  });
}

void CpuOps::ExpertLinear(const ExpertLinearParams& p) {
  const int64_t num_in = p.weights->num_in;
  const auto& storage = *static_cast<const PackedExperts*>(p.weights->storage.get());
  const LinearKernel kernel = KernelOf(target_, storage.experts);
  const int64_t num_inputs = p.x_per_choice ? p.num_tokens * p.num_chosen : p.num_tokens;
  const LinearInput x = Prepare(kernel, p.x.f32(), num_inputs, num_in, num_in);
  PlanExperts(p, LinearRowsMax(kernel, x.stride), kernel.rows_multiple, &expert_plan_);
  const auto num_chunks = static_cast<int64_t>(expert_plan_.chunks.size());
  const int64_t num_groups = CeilDiv(p.weights->num_out, kGroupWidth);
  // An item is several neighbouring groups, for which rows are gathered once.
  const int64_t groups = GroupsPerItem(num_chunks * num_groups, kExpertGroupsMax);
  const int64_t num_blocks = CeilDiv(num_groups, groups);
  pool_.ParallelFor(num_chunks * num_blocks, [&](int64_t i, int thread) {
    const int64_t first = i % num_blocks * groups;
    const ExpertItem item = {&expert_plan_.chunks[i / num_blocks], first,
                             std::min(num_groups, first + groups)};
    const int64_t scratch_floats =
        ExpertScratchFloats(static_cast<int64_t>(item.chunk->pairs.size()), x.stride);
    PerThread& its = threads_[thread];
    RunExpertItem(p, item, x,
                  {.target = target_,
                   .linear = &kernel,
                   .scratch = its.linear.Reserve(static_cast<size_t>(scratch_floats)),
                   .expanded = &its.expanded});
  });
}

// An item is a group of a head's outputs for a chunk of tokens. Those of a head are neighbours.
void CpuOps::HeadLinear(const HeadLinearParams& p) {
  const int64_t num_heads = p.weights->num_experts, num_in = p.weights->num_in;
  const int64_t num_out = p.weights->num_out, copied = p.num_copied;
  const auto& heads = static_cast<const PackedExperts*>(p.weights->storage.get())->experts;
  const LinearKernel kernel = KernelOf(target_, heads);
  const int64_t x_width = copied + num_in, out_width = copied + num_out;
  const int64_t out_stride = p.out_stride == 0 ? num_heads * out_width : p.out_stride;
  const LinearInput x =
      Prepare(kernel, p.x.f32() + copied, p.num_tokens * num_heads, num_in, x_width);
  const int64_t num_groups = CeilDiv(num_out, kGroupWidth);
  const int64_t rows = LinearRowsMax(kernel, x.stride);
  const int64_t num_chunks = CeilDiv(p.num_tokens, rows);
  pool_.ParallelForRanges(num_heads * num_chunks * num_groups, [&](int64_t i, int thread) {
    const int64_t head = i / (num_chunks * num_groups), group = i % num_groups;
    const int64_t begin = i / num_groups % num_chunks * rows;
    const int64_t end = std::min(p.num_tokens, begin + rows);
    float* const out = p.out.f32() + begin * out_stride + head * out_width;
    for (int64_t t = begin; group == 0 && t < end; ++t) {
      std::copy_n(p.x.f32() + (t * num_heads + head) * x_width, copied,
                  out + (t - begin) * out_stride);
    }
    PerThread& its = threads_[thread];
    MultiplyBlock(target_, kernel,
                  {.x = x.rows + (begin * num_heads + head) * x.stride,
                   .x_stride = num_heads * x.stride,
                   .weight = &heads[static_cast<size_t>(head)],
                   .bias = nullptr,
                   .out = out + copied + group * kGroupWidth,
                   .out_stride = out_stride,
                   .num_rows = end - begin,
                   .group = group,
                   .scratch = its.linear.Reserve(kLinearScratchFloats)},
                  &its.expanded);
  });
}

// Upper bound on the query rows of an item.
int64_t QueryRowsMax(int64_t num_heads, int64_t num_kv_heads) {
  return std::max(kQueryRowsMax, num_heads / num_kv_heads);
}

float* CpuOps::AttentionScratch(const AttentionParams& p, int thread) {
  const int64_t rows = QueryRowsMax(p.num_heads, p.num_kv_heads);
  return threads_[thread].attention.Reserve(
      static_cast<size_t>(AttentionScratchFloats(rows, p.head_dim, p.value_dim())));
}

void CpuOps::Attention(const AttentionParams& p) {
  const Bf16Products* const products = Bf16ProductsOf(p.kv);
  for (const AttentionLoop& loop : attention_planner_.Plan(p, pool_.num_threads()).loops) {
    float* const states = split_states_.Reserve(static_cast<size_t>(loop.state_floats));
    pool_.ParallelFor(std::ssize(loop.attend), [&](int64_t i, int thread) {
      attention_.attend(p, loop.attend[i], products, states, AttentionScratch(p, thread));
    });
    pool_.ParallelFor(std::ssize(loop.merge), [&](int64_t i, int thread) {
      attention_.merge(p, loop.merge[i], states, AttentionScratch(p, thread));
    });
  }
}

void CpuOps::Sample(const SampleParams& p) {
  pool_.ParallelFor(p.num_rows, [&](int64_t i, int thread) {
    threads_[thread].sampler.SampleRow({.logits = p.logits + i * p.vocab_size,
                                        .vocab_size = p.vocab_size,
                                        .sampling = p.sampling[i],
                                        .history = p.history[i],
                                        .prompt_len = p.prompt_len[i],
                                        .history_len = p.history_len[i],
                                        .given = p.given == nullptr ? -1 : p.given[i],
                                        .mask = p.masks == nullptr ? nullptr : p.masks[i]},
                                       &p.results[i]);
  });
}

// Upper bound over all targets on the stride of a converted row of `num_in` inputs, for weights of
// `format`. 0 if rows are never converted.
int64_t PreparedStrideMax(const WeightFormat& format, int64_t num_in) {
  // More than all in bf16.
  if (format.quantization == Quantization::kInt8) return PreparedStride(Int8RowBytesMax(num_in));
  int64_t bytes = format.dtype == DType::kBF16 ? 2 * num_in + 2 : 0;
  // With f32, codes are multiplied as they are.
  if (MayHaveCodes(format) && format.dtype != DType::kF32) {
    bytes = std::max({bytes, Int8RowBytesMax(num_in), BytesRowBytes(num_in)});
    static_assert(Int8RowBytesMax(kQuantBlock) >= CodesInt8RowBytesMax(kQuantBlock));
  }
  return bytes == 0 ? 0 : PreparedStride(bytes);
}

int64_t ValueDim(const CpuScratchLimits& limits) {
  return limits.value_dim == 0 ? limits.head_dim : limits.value_dim;
}

int64_t ThreadScratchBytes(const CpuScratchLimits& limits) {
  constexpr int64_t kFloatBytes = sizeof(float);
  const int64_t attention = AttentionScratchFloats(
      QueryRowsMax(limits.num_heads, limits.num_kv_heads), limits.head_dim, ValueDim(limits));
  int64_t bytes = (attention + kLinearScratchFloats) * kFloatBytes;
  if (MayHaveCodes(limits.weight_format)) {
    bytes += ExpandedBytes(std::max(limits.max_inputs, limits.expert_inputs));
  }
  if (limits.num_chosen > 0) {
    const int64_t num_in = std::max(limits.max_inputs, limits.expert_inputs);
    const int64_t row_bytes =
        std::max(PreparedStrideMax(limits.weight_format, num_in), num_in * kFloatBytes);
    const bool tiles = limits.weight_format.dtype == DType::kBF16;  // they may run on AMX
    const int64_t chunk_bytes = tiles ? kAnyLinearChunkBytes : kLinearChunkBytes;
    const int64_t rows_max = tiles ? kAnyLinearRowsMax : kLinearRowsMax;
    bytes +=
        std::max(chunk_bytes, kLinearRowsMin * row_bytes) + rows_max * kGroupWidth * kFloatBytes;
  }
  return bytes;
}

}  // namespace
}  // namespace minisgl::cpu

namespace minisgl {

std::optional<uint64_t> CpuScratchBytes(const CpuScratchLimits& limits) {
  // With sizes up to these no sum and no product of two overflows 64 bits.
  constexpr int64_t kSizeMax = int64_t{1} << 31, kAreaMax = int64_t{1} << 40;
  for (const int64_t size :
       {limits.max_tokens, limits.max_logit_rows, limits.vocab_size, limits.max_inputs,
        limits.expert_inputs, limits.num_chosen, limits.head_inputs, limits.num_heads}) {
    if (size > kSizeMax) return std::nullopt;
  }
  const int64_t query_rows = cpu::QueryRowsMax(limits.num_heads, limits.num_kv_heads);
  if (query_rows * std::max(limits.head_dim, limits.value_dim) > kAreaMax) return std::nullopt;

  const auto prepared = [](const WeightFormat& format, int64_t num_rows, int64_t num_in) {
    return CheckedMul(static_cast<uint64_t>(num_rows),
                      static_cast<uint64_t>(cpu::PreparedStrideMax(format, num_in)));
  };
  const WeightFormat& format = limits.weight_format;
  const auto of_tokens = prepared(format, limits.max_tokens, limits.max_inputs);
  const auto of_choices =
      prepared(format, limits.max_tokens * limits.num_chosen, limits.expert_inputs);
  const int64_t head_rows = limits.head_inputs == 0 ? 0 : limits.max_tokens * limits.num_heads;
  const auto of_heads = prepared(format.dtype, head_rows, limits.head_inputs);
  // The inputs of the output head, if its format is another.
  const bool same = TableFormat(format) == format;
  const auto of_logits =
      prepared(TableFormat(format), same ? 0 : limits.max_logit_rows, limits.max_inputs);
  if (!of_tokens || !of_choices || !of_heads || !of_logits) return std::nullopt;
  const int64_t num_samplers = std::min<int64_t>(limits.num_threads, limits.max_logit_rows);
  const int64_t of_threads = limits.num_threads * cpu::ThreadScratchBytes(limits) +
                             num_samplers * cpu::Sampler::MaxBytes(limits.vocab_size) +
                             cpu::kSplitStateFloatsMax * static_cast<int64_t>(sizeof(float));
  return CheckedAdd(std::max({*of_tokens, *of_choices, *of_heads, *of_logits}),
                    static_cast<uint64_t>(of_threads));
}

Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsConfig& config) {
  if (config.num_threads < 1) {
    return UsageError("cannot use {} CPU threads; give 1 or more", config.num_threads);
  }
  MINISGL_ASSIGN_OR_RETURN(const cpu::CpuTarget target, cpu::FindCpuTarget(config.target));
  if (config.target.empty() && config.rank.index == 0 && cpu::IsBuiltForAnotherMachine()) {
    Log(LogLevel::kWarning,
        fmt::format(
            "this program was built for another processor: it has the kernels of {}, not of "
            "this processor's best instructions; a build with -Dcpu_targets=native has them",
            cpu::CpuTargetName(target)));
  }
  try {
    return std::unique_ptr<Ops>(std::make_unique<cpu::CpuOps>(target, config));
  } catch (const std::bad_alloc&) {
    return MakeStatus(StatusCode::kOutOfMemory, "no memory for {} CPU threads; use fewer",
                      config.num_threads);
  }
}

}  // namespace minisgl
