// Products of CudaOps whose inputs are rounded to e4m3 (scaled_matrix.h): of more tokens than own
// kernels take, with the word w8a8.
//
// Inputs are rounded into a memory of fixed size, for a step of many tokens some tokens at a time,
// by the norm or the activation before the product if one of them makes the inputs of all tokens.
// An activation waits for that until the next operation is queued.
#include <algorithm>
#include <utility>

#include "cuda_ops_class.h"
#include "kernels/scaled_input.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

constexpr int64_t kTokensUnit = 64;  // a piece has a multiple of so many tokens
constexpr int64_t kFewTokens = 32;   // of small-pieces, for tests

size_t AlignUp(int64_t num_bytes) {
  constexpr int64_t kAlignment = 256;
  return static_cast<size_t>((num_bytes + kAlignment - 1) / kAlignment * kAlignment);
}

int64_t LineBytes(const CodedMatrix& codes) {
  return int64_t{codes.runs[0].rows.num_lines} * kCodeLineBytes;
}

int64_t ScalesOfToken(const CodedMatrix& codes) {
  return codes.scaled.rounding == InputRounding::kGroups ? CeilDiv(codes.num_in, kScaledInputs) : 1;
}

// Bytes of the inputs of so many tokens: codes, and scales behind them.
size_t InputBytes(const CodedMatrix& codes, int64_t num_tokens) {
  const int64_t rows = RowsOfScaled(codes.scaled.rounding, num_tokens);
  return AlignUp(rows * LineBytes(codes)) +
         AlignUp(rows * ScalesOfToken(codes) * static_cast<int64_t>(sizeof(float)));
}

// Tokens whose inputs are rounded at once; 0: a token's are too many.
int64_t PieceTokens(const CodedMatrix& codes, int64_t max_tokens, const DebugSwitches& debug) {
  if (debug.small_pieces) return kFewTokens;
  if (InputBytes(codes, max_tokens) <= kInputBytesMax) return max_tokens;
  const int64_t token_bytes =
      LineBytes(codes) + ScalesOfToken(codes) * static_cast<int64_t>(sizeof(float));
  const auto fit = static_cast<int64_t>(kInputBytesMax - AlignUp(1) * 2) / token_bytes;
  return fit / kTokensUnit * kTokensUnit;
}

bool AreAligned(int64_t a, int64_t b) { return (a | b) % kScaledMatmulAlignment == 0; }

}  // namespace

Status CudaOps::TakeInputMemory(const CodedMatrix& codes) {
  if (codes.scaled.rounding == InputRounding::kNone || max_tokens_ == 0) return Status();
  const int64_t tokens = PieceTokens(codes, max_tokens_, debug_);
  const size_t input_bytes = InputBytes(codes, tokens);
  const auto last_bytes = static_cast<size_t>(codes.num_out * kBlocksMatmulUnit) * sizeof(float);
  const auto take = [this](size_t num_bytes, ScratchMemory* memory) {
    if (num_bytes <= memory->num_bytes) return Status();
    MINISGL_RETURN_IF_ERROR(CudaOps::Synchronize());
    memory->memory.reset();
    memory->num_bytes = 0;
    MINISGL_ASSIGN_OR_RETURN(memory->memory, CudaOps::Allocate(num_bytes));
    memory->num_bytes = num_bytes;
    return Status();
  };
  MINISGL_RETURN_IF_ERROR(take(input_bytes, &input_memory_));
  return take(last_bytes, &last_outputs_);
}

bool CudaOps::TakesScaledInput(const LinearParams& p) const {
  if (!scales_inputs_ || p.weight->quantization == Quantization::kNone) return false;
  const CodedMatrix& codes = CodesOf(*p.weight);
  if (codes.scaled.rounding == InputRounding::kNone) return false;
  if (input_memory_.memory == nullptr || PieceTokens(codes, max_tokens_, debug_) == 0) return false;
  const auto width = static_cast<int64_t>(DTypeBytes(p.out.dtype));
  const int64_t stride = p.out_stride == 0 ? p.weight->num_out : p.out_stride;
  const std::vector<ScaledRows>& rows = codes.scaled.rows;
  return AreAligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(p.out.data)),
                    stride * width) &&
         std::all_of(rows.begin(), rows.end(), [&](const ScaledRows& its) {
           return AreAligned(its.first * width, its.count * width);
         });
}

void CudaOps::RunHeldActivation() {
  if (!held_activation_) return;
  const ActivateParams params = *std::exchange(held_activation_, std::nullopt);
  Queue("Activate", LaunchActivate, params);
}

void CudaOps::RunFusedScaled(const FusedLinearParams& p) {
  RunScaled(p.linear, p.norm);
  FusedLinearParams behind = p;
  if (p.activation != nullptr && p.activation->activation != Activation::kXielu) {
    held_activation_ = *p.activation;
    behind.activation = nullptr;
  }
  RunPartsBehind(behind);
}

ScaledInput CudaOps::InputOf(const CodedMatrix& codes, int64_t num_tokens) const {
  auto* const memory = static_cast<uint8_t*>(input_memory_.memory.get());
  const int64_t rows = RowsOfScaled(codes.scaled.rounding, num_tokens);
  const bool has_groups = codes.scaled.rounding == InputRounding::kGroups;
  return {.rounding = codes.scaled.rounding,
          .fixed_scale = codes.scaled.input_scale,
          .num_in = static_cast<int32_t>(codes.num_in),
          .num_lines = codes.runs[0].rows.num_lines,
          .order = has_groups ? CodeOrder() : codes.runs[0].rows.order,
          .codes = memory,
          .scales = reinterpret_cast<float*>(memory + AlignUp(rows * LineBytes(codes)))};
}

// `norm`: null, or the norm whose output is p.x.
void CudaOps::RunScaled(const LinearParams& p, const NormParams* norm) {
  CheckReserved();
  const CodedMatrix& codes = CodesOf(*p.weight);
  const int64_t piece = PieceTokens(codes, max_tokens_, debug_);
  const bool is_whole = p.num_tokens <= piece;
  std::optional<ActivateParams> activation;
  if (held_activation_ && norm == nullptr && is_whole && held_activation_->out.data == p.x.data &&
      held_activation_->out.dtype == p.x.dtype && held_activation_->num_tokens == p.num_tokens &&
      held_activation_->width == codes.num_in) {
    activation = std::exchange(held_activation_, std::nullopt);
  }
  if (norm != nullptr && !(is_whole && NormTakesScaling(*norm))) {
    Norm(*norm);
    norm = nullptr;
  }
  const int64_t stride = p.out_stride == 0 ? p.weight->num_out : p.out_stride;
  for (int64_t first = 0; first < p.num_tokens; first += piece) {
    LinearParams part = p;
    part.num_tokens = std::min(piece, p.num_tokens - first);
    part.x = p.x.At(first * codes.num_in);
    part.out = p.out.At(first * stride);
    const ScaledInput input = InputOf(codes, part.num_tokens);
    if (norm != nullptr) {
      Queue("ScaledNorm", [&] { return LaunchScaledNorm(context_, input, *norm); });
    } else if (activation) {
      Queue("ScaledActivate", [&] { return LaunchScaledActivate(context_, input, *activation); });
    } else {
      Queue("ScaleInput",
            [&] { return LaunchScaleInput(context_, input, part.x, part.num_tokens); });
    }
    if (!Usable() || !RunScaledProducts(part, input)) return;
  }
  AddBias(p);
}

// The products of all rows of the matrix, with the rounded inputs of p.num_tokens tokens. False
// after an error, which is kept.
bool CudaOps::RunScaledProducts(const LinearParams& p, const ScaledInput& input) {
  const CodedMatrix& codes = CodesOf(*p.weight);
  const bool has_groups = input.rounding == InputRounding::kGroups;
  for (const ScaledRows& rows : codes.scaled.rows) {
    const CodedRun& run = codes.runs[rows.run];
    const auto* const scales =
        static_cast<const float*>(codes.scaled.scales.get()) + rows.scales_at;
    const uint8_t* const weight = run.rows.codes + (rows.first - run.first) * LineBytes(codes);
    if (!has_groups || run.rows.order.warps == 1) {
      if (!RunScaledRows(p, input, rows, weight, scales)) return false;
      continue;
    }
    // Blocks whose inputs lie apart are put together.
    const int64_t fit = static_cast<int64_t>(expand_bytes_) / LineBytes(codes) / kMatmulBlock;
    MINISGL_CHECK(fit > 0, "no room for a block's rows of {} inputs", codes.num_in);
    auto* const plain = static_cast<uint8_t*>(expand_memory_.get());
    for (int64_t first = 0; first < rows.count; first += fit * kMatmulBlock) {
      ScaledRows some = rows;
      some.first += first;
      some.count = std::min(fit * kMatmulBlock, rows.count - first);
      Queue("PlainLines", [&] {
        return LaunchPlainLines(context_, run.rows, some.first - run.first, some.count, plain);
      });
      const float* const its = scales + first / kMatmulBlock * MatmulBlockStride(codes.num_in);
      if (!Usable() || !RunScaledRows(p, input, some, plain, its)) return false;
    }
  }
  const int64_t main = p.num_tokens / kBlocksMatmulUnit * kBlocksMatmulUnit;
  if (!has_groups || main == p.num_tokens) return true;
  const auto width = static_cast<int64_t>(DTypeBytes(p.out.dtype));
  const int64_t row_bytes = p.weight->num_out * width;
  const int64_t stride = p.out_stride == 0 ? p.weight->num_out : p.out_stride;
  for (int64_t token = main; token < p.num_tokens; ++token) {
    CopyOnDevice(static_cast<std::byte*>(p.out.data) + token * stride * width,
                 static_cast<std::byte*>(last_outputs_.memory.get()) + (token - main) * row_bytes,
                 static_cast<size_t>(row_bytes));
  }
  return Usable();
}

// The product of some rows, whose codes and scales begin at `weight` and `scales`. Where cuBLASLt
// takes multiples of 4 tokens alone, the last ones, with zeros behind them, are a product of their
// own, whose outputs are copied from last_outputs_.
bool CudaOps::RunScaledRows(const LinearParams& p, const ScaledInput& input, const ScaledRows& rows,
                            const void* weight, const float* scales) {
  const bool has_groups = input.rounding == InputRounding::kGroups;
  const int64_t line_bytes = int64_t{input.num_lines} * kCodeLineBytes;
  MatmulShape shape = {.num_tokens = p.num_tokens,
                       .num_out = rows.count,
                       .num_in = line_bytes,
                       .dtype = DType::kE4M3,
                       .out_dtype = p.out.dtype,
                       .out_stride = p.out_stride == 0 ? p.weight->num_out : p.out_stride,
                       .scales = has_groups ? MatmulScales::kBlocks : MatmulScales::kVectors};
  const auto run = [&](const uint8_t* x, const float* x_scales, void* out) {
    auto* const at =
        static_cast<std::byte*>(out) + rows.first * static_cast<int64_t>(DTypeBytes(p.out.dtype));
    return RunLibrary(*p.weight, [&] {
      return matmul_->ScaledMatmul(
          shape, {.x = x, .x_scales = x_scales, .weight = weight, .weight_scales = scales}, at,
          compute_.get());
    });
  };
  if (!has_groups) return run(input.codes, input.scales, p.out.data);
  const int64_t main = p.num_tokens / kBlocksMatmulUnit * kBlocksMatmulUnit;
  shape.num_tokens = main;
  if (main > 0 && !run(input.codes, input.scales, p.out.data)) return false;
  if (main == p.num_tokens) return true;
  shape.num_tokens = kBlocksMatmulUnit;
  shape.out_stride = p.weight->num_out;
  return run(input.codes + main * line_bytes,
             input.scales + CeilDiv(int64_t{input.num_in}, kScaledInputs) * main,
             last_outputs_.memory.get());
}

}  // namespace minisgl::cuda
