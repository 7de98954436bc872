// The matrices of CudaOps and their products (cuda_ops_class.h).
//
// Products of few rows read codes. For more rows a matrix of codes is expanded to a scratch, in
// pieces of rows if it is large, and the product is the library's. Both have the bits of products
// with a matrix that was expanded as it was loaded.
#include <algorithm>

#include "cuda_error.h"
#include "cuda_ops_class.h"
#include "fused_linear.h"

namespace minisgl::cuda {
namespace {

// Pieces begin at multiples of so many rows, so that outputs are aligned as a whole matrix's are.
constexpr int64_t kPieceUnit = 64;

// Rows that are expanded at once.
int64_t PieceRows(int64_t num_out, int64_t num_in, const DebugSwitches& debug) {
  const int64_t bytes_max = debug.small_pieces ? 0 : static_cast<int64_t>(kExpandBytesMax);
  const int64_t fit = bytes_max / (num_in * int64_t{2});
  return fit >= num_out ? num_out : std::max(fit / kPieceUnit, int64_t{1}) * kPieceUnit;
}

}  // namespace

Result<Matrix> CudaOps::PackMatrix(std::span<const WeightTensor> parts,
                                   const WeightFormat& format) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  MINISGL_ASSIGN_OR_RETURN(Matrix matrix, packer_->Pack(parts, format));
  if (matrix.quantization != Quantization::kNone) {
    MINISGL_RETURN_IF_ERROR(TakeExpandMemory(matrix.num_out, matrix.num_in));
    MINISGL_RETURN_IF_ERROR(TakeInputMemory(CodesOf(matrix)));
  }
  return matrix;
}

Result<ExpertMatrices> CudaOps::PackExperts(std::span<const std::vector<WeightTensor>> experts,
                                            const WeightFormat& format) {
  MINISGL_RETURN_IF_ERROR(status_);
  CheckNotCapturing();
  return packer_->PackExperts(experts, format);
}

std::string CudaOps::ExpandedCodesText() const {
  int64_t count = 0;
  std::string reasons;
  for (const auto& [why, its] : packer_->expanded()) {
    count += its;
    reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", why, its);
  }
  if (count == 0) return "";
  return fmt::format("{} of the matrices of codes are expanded: {}", count, reasons);
}

// While weights are packed no operation runs that uses it.
Status CudaOps::TakeExpandMemory(int64_t num_out, int64_t num_in) {
  const auto num_bytes = static_cast<size_t>(PieceRows(num_out, num_in, debug_) * num_in * 2);
  if (num_bytes <= expand_bytes_) return Status();
  MINISGL_RETURN_IF_ERROR(CudaOps::Synchronize());
  expand_memory_.reset();
  MINISGL_ASSIGN_OR_RETURN(expand_memory_, CudaOps::Allocate(num_bytes));
  expand_bytes_ = num_bytes;
  return Status();
}

void CudaOps::ExpandRows(const Matrix& weight, int64_t first, int64_t count) {
  for (const CodedRun& run : CodesOf(weight).runs) {
    const int64_t begin = std::max(first, run.first);
    const int64_t end = std::min(first + count, run.first + run.count);
    if (begin >= end) continue;
    auto* const out =
        static_cast<uint16_t*>(expand_memory_.get()) + (begin - first) * weight.num_in;
    Queue("ExpandCodes", [&] {
      return LaunchExpandCodes(context_, run.rows, begin - run.first, end - begin, weight.dtype,
                               out);
    });
  }
}

void CudaOps::Embedding(const EmbeddingParams& p) {
  const Matrix& table = *p.table;
  if (table.quantization == Quantization::kNone) {
    return Queue("Embedding",
                 [&] { return LaunchEmbedding(context_, p, table.storage.get(), table.dtype); });
  }
  Queue("Embedding", [&] {
    return LaunchCodedEmbedding(context_, p, CodesOf(table).runs[0].rows, table.dtype);
  });
}

bool CudaOps::RunOwnProduct(const FusedLinearParams& p) {
  const Matrix& weight = *p.linear.weight;
  MINISGL_CHECK(p.linear.x.dtype == weight.dtype, "Linear of {} with weights of {}",
                DTypeName(p.linear.x.dtype), DTypeName(weight.dtype));
  if (!TakesGemv(p.linear.num_tokens)) return false;
  RunHeldActivation();
  if (!HoldProduct(p)) RunProductAlone(p);
  return true;
}

bool CudaOps::HoldProduct(const FusedLinearParams& p) {
  if (chain_memory_.get() == nullptr || link_ != nullptr) return false;
  if (held_.full()) RunHeldProducts();
  if (!held_.Add(context_, p)) return false;
  rope_is_last_ = false;
  return true;
}

void CudaOps::RunHeldProducts() {
  RunHeldActivation();
  if (held_.empty()) return;
  const std::vector<ProductChain::Item> items = held_.Take();
  if (items.size() == 1) return RunProductAlone(items[0].Params());
  std::vector<ProductParams> products;
  for (const ProductChain::Item& item : items) products.push_back(item.Product());
  Queue(watch_ ? fmt::format("Chain of {}", items.size()) : "Chain", [&] {
    return LaunchGemvChain(context_, products, static_cast<uint32_t*>(chain_memory_.get()));
  });
}

void CudaOps::RunProductAlone(const FusedLinearParams& params) {
  FusedLinearParams p = params;
  const Matrix& weight = *p.linear.weight;
  if (weight.quantization != Quantization::kNone) return RunCodesProduct(p);
  // Codes are not what this kernel fetches ahead.
  const Matrix* const next = p.linear.next;
  if (next != nullptr && next->quantization != Quantization::kNone) p.linear.next = nullptr;
  const FusedParts parts = DivideFusedLinear(context_, p, debug_);
  if (parts.norm != nullptr) Norm(*parts.norm);
  Queue(LinearName(weight),
        [&] { return LaunchGemv(context_, parts.product, weight.storage.get()); });
  if (parts.activation != nullptr) Activate(*parts.activation);
}

// A run at a time: rows of one form. Its activation could need rows of two runs.
void CudaOps::RunCodesProduct(const FusedLinearParams& p) {
  const Matrix& weight = *p.linear.weight;
  const std::vector<CodedRun>& runs = CodesOf(weight).runs;
  DebugSwitches without = debug_;
  without.no_fused_norm = true;
  without.no_fused_activation = debug_.no_fused_activation || runs.size() > 1;
  const FusedParts parts = DivideFusedLinear(context_, p, without);
  if (parts.norm != nullptr) Norm(*parts.norm);
  for (const CodedRun& run : runs) {
    Queue(LinearName(weight),
          [&] { return LaunchGemvCodes(context_, parts.product, run.rows, run.first, run.count); });
  }
  if (parts.activation != nullptr) Activate(*parts.activation);
}

void CudaOps::FusedLinear(const FusedLinearParams& p) {
  if (p.linear.num_tokens == 0 || !Usable() || RunOwnProduct(p)) return;
  if (TakesScaledInput(p.linear)) return RunFusedScaled(p);
  RunParts(p);
}

void CudaOps::ExpertLinear(const ExpertLinearParams& p) {
  CheckReserved();
  Queue("ExpertLinear", [&] {
    const ExpertMatrices& weights = *p.weights;
    if (weights.quantization == Quantization::kNone) {
      return LaunchExpertLinear(context_, p, weights.storage.get(), expert_workspace_);
    }
    return LaunchExpertCodes(context_, p, CodesOf(weights).runs[0].rows, expert_workspace_);
  });
}

// The product with `count` rows of the weights at `memory`, the first of which is `first`.
bool CudaOps::RunMatmul(const LinearParams& p, int64_t first, int64_t count, const void* memory) {
  const Matrix& weight = *p.weight;
  const MatmulShape shape = {
      .num_tokens = p.num_tokens,
      .num_out = count,
      .num_in = weight.num_in,
      .dtype = weight.dtype,
      .out_dtype = p.out.dtype,
      .out_stride = count < weight.num_out && p.out_stride == 0 ? weight.num_out : p.out_stride};
  auto* const out =
      static_cast<std::byte*>(p.out.data) + first * static_cast<int64_t>(DTypeBytes(p.out.dtype));
  return RunLibrary(weight,
                    [&] { return matmul_->Matmul(shape, p.x.data, memory, out, compute_.get()); });
}

// Queues a product with `weight` by a call of the library.
bool CudaOps::RunLibrary(const Matrix& weight, const std::function<Status()>& call) {
  RunHeldProducts();
  rope_is_last_ = false;
  copies_->Queued();
  if (!BeginWatched(LinearName(weight))) return false;
  const Status status = call();
  if (status.ok()) return EndWatched();
  // If the device is lost, CUDA's error has the cause; the library's has not.
  const CudaError cause = capturing_ ? api_->LastError() : api_->StreamSynchronize(compute_.get());
  if (IsSticky(cause)) {
    Keep(cause, "cublasLtMatmul");
  } else {
    (capturing_ ? capture_status_ : status_) = status.WithPrefix(name_);
  }
  return false;
}

void CudaOps::Linear(const LinearParams& p) {
  if (p.num_tokens == 0 || !Usable() || RunOwnProduct({.linear = p})) return;
  if (TakesScaledInput(p)) return RunScaled(p, nullptr);
  if (TakesCodeTiles(p)) return RunCodeTiles(p);
  const Matrix& weight = *p.weight;
  CheckReserved();
  if (weight.quantization == Quantization::kNone) {
    if (!RunMatmul(p, 0, weight.num_out, weight.storage.get())) return;
  } else {
    const int64_t rows = PieceRows(weight.num_out, weight.num_in, debug_);
    for (int64_t first = 0; first < weight.num_out; first += rows) {
      const int64_t count = std::min(rows, weight.num_out - first);
      ExpandRows(weight, first, count);
      if (!Usable() || !RunMatmul(p, first, count, expand_memory_.get())) return;
    }
  }
  AddBias(p);
}

bool CudaOps::TakesCodeTiles(const LinearParams& p) const {
  if (!debug_.code_tiles || config_.deterministic || config_.library_products ||
      p.weight->quantization == Quantization::kNone || p.num_tokens > kCodeTileTokensMax) {
    return false;
  }
  const std::vector<CodedRun>& runs = CodesOf(*p.weight).runs;
  return std::all_of(runs.begin(), runs.end(),
                     [](const CodedRun& run) { return run.rows.order.has_shifts(); });
}

void CudaOps::RunCodeTiles(const LinearParams& p) {
  for (const CodedRun& run : CodesOf(*p.weight).runs) {
    Queue(LinearName(*p.weight),
          [&] { return LaunchCodeTiles(context_, p, run.rows, run.first, run.count); });
  }
}

void CudaOps::AddBias(const LinearParams& p) {
  if (p.bias == nullptr) return;
  Queue("Linear's bias", [&] {
    return LaunchAddBias(context_, p.out, p.bias, p.num_tokens, p.weight->num_out, p.out_stride);
  });
}

}  // namespace minisgl::cuda
