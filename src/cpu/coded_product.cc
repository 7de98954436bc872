// See coded_product.h.
#include "cpu/coded_product.h"

#include <algorithm>

#include "cpu/block_panels.h"

namespace minisgl::cpu {
namespace {

// The kernels that read a matrix.
enum class KernelKind {
  kDense,  // the kernel for weights that are not quantized: of dense or of expanded ones
  kCodes,  // linear_codes_int8.cc
  kInt8,   // linear_int8.cc
  kTiles,  // linear_bytes_amx.cc
  kE4M3,   // of few rows linear_e4m3-inl.h or linear_e4m3_bf16.cc, else as kDense
};

bool IsReadByCodesInt8(const CodedMatrix& codes) {
  constexpr int64_t kStep = kQuantBlock / 2;
  const bool has_steps = codes.num_groups() == 1 || codes.group_inputs % kStep == 0;
  // e2m1 has no zero points in any format.
  return codes.order == CodeOrder::kWords && (codes.has_4_bits() || codes.has_6_bits()) &&
         has_steps && !(codes.kind == CodeKind::kSigned4 && codes.has_zeros);
}

// The order of codes that the kernel of few rows reads, of weights that are expanded to `type`.
CodeOrder E4M3Order(DType type) {
  return type == DType::kBF16 ? CodeOrder::kWords : CodeOrder::kSplitQuads;
}

// Several groups have a multiple of eight inputs each (HaveCommonCodes).
bool IsReadByE4M3(CpuTarget target, DType dtype, const CodedMatrix& codes) {
  return codes.kind == CodeKind::kE4M3 && codes.order == E4M3Order(ExpandedType(target, dtype)) &&
         (codes.order == CodeOrder::kWords || codes.moves_bits) && !codes.has_zeros &&
         !codes.has_offsets;
}

KernelKind KernelKindOf(CpuTarget target, const PackedMatrix& weight) {
  if (weight.coded == nullptr) return KernelKind::kDense;
  const bool is_stored = weight.format.quantization == Quantization::kStored;
  if (weight.coded->order == CodeOrder::kBlocks) {
    const bool has_integers =
        HasIntegerProductsOfType(target, weight.format.dtype) && !UsesTiles(target);
    return has_integers ? KernelKind::kInt8 : KernelKind::kDense;
  }
  if (weight.coded->order == CodeOrder::kQuads) {
    return UsesTiles(target) && is_stored ? KernelKind::kTiles : KernelKind::kInt8;
  }
  if (IsReadByE4M3(target, weight.format.dtype, *weight.coded)) return KernelKind::kE4M3;
  return HasIntegerProductsOfType(target, weight.format.dtype) && IsReadByCodesInt8(*weight.coded)
             ? KernelKind::kCodes
             : KernelKind::kDense;
}

LinearKernel KernelFor(CpuTarget target, KernelKind kind, DType dtype) {
  switch (kind) {
    case KernelKind::kDense:
      break;
    case KernelKind::kCodes:
      return CodesInt8LinearKernels()[static_cast<size_t>(target)]();
    case KernelKind::kInt8:
      return Int8LinearKernels()[static_cast<size_t>(target)]();
    case KernelKind::kTiles:
      return HasTiles(target) ? BytesAmxLinearKernel() : BytesStandInLinearKernel();
    case KernelKind::kE4M3: {
      LinearKernel kernel = FindLinearKernel(target, dtype);
      const DType expanded_type = ExpandedType(target, dtype);
      kernel.multiply_codes = FindE4M3Multiply(target, expanded_type);
      kernel.codes_order = E4M3Order(expanded_type);
      kernel.codes_rows_max = kernel.multiply_codes == nullptr ? 0 : kE4M3RowsMax;
      return kernel;
    }
  }
  return FindLinearKernel(target, dtype);
}

}  // namespace

int64_t ExpandedBytes(int64_t num_in) {
  const int64_t expanded = (num_in + num_in % 2) * kGroupWidth * int64_t{sizeof(float)};
  return std::max(expanded, BlockProductBytes(num_in));
}

DType ExpandedType(CpuTarget target, DType dtype) {
  return dtype == DType::kBF16 && RoundsToBf16(target) ? DType::kBF16 : DType::kF32;
}

bool MayHaveCodes(const WeightFormat& format) {
  if (format.quantization == Quantization::kInt8) return format.dtype == DType::kBF16;
  return format.quantization != Quantization::kNone;
}

CodeOrders CodeOrdersOf(CpuTarget target, DType dtype) {
  const bool by_tiles = UsesTiles(target) && dtype == DType::kBF16;
  const CodeOrder order = by_tiles ? CodeOrder::kLines : CodeOrder::kWords;
  CodeOrders orders = order;
  orders.keeps_blocks = true;
  if (!by_tiles) orders.e4m3 = E4M3Order(ExpandedType(target, dtype));
  if (HasIntegerProductsOfType(target, dtype)) {
    orders.small = CodeOrder::kWords;
    if (!UsesTiles(target)) orders.integers = orders.int8_inputs = CodeOrder::kQuads;
  }
  if (HasByteProductsOfType(target, dtype)) orders.int8_inputs = CodeOrder::kQuads;
  if (!WidensInt8(target, dtype)) orders.quantized_int8 = CodeOrder::kQuads;
  return orders;
}

bool HasByteProductsOfType(CpuTarget target, DType dtype) {
  return UsesTiles(target) && dtype != DType::kF32;
}

bool HasIntegerProductsOfType(CpuTarget target, DType dtype) {
  return (!UsesTiles(target) || target == CpuTarget::kAmxVnni) && dtype != DType::kF32;
}

bool WidensInt8(CpuTarget target, DType dtype) {
  return UsesTiles(target) && target != CpuTarget::kAmxVnni && dtype == DType::kBF16;
}

bool HasIntegerProducts(CpuTarget target, const PackedMatrix& weight) {
  const KernelKind kind = KernelKindOf(target, weight);
  return kind == KernelKind::kCodes || kind == KernelKind::kInt8;
}

LinearKernel KernelOf(CpuTarget target, const PackedMatrix& weight) {
  return KernelFor(target, KernelKindOf(target, weight), weight.format.dtype);
}

LinearKernel KernelOf(CpuTarget target, std::span<const PackedMatrix> weights) {
  const KernelKind kind = KernelKindOf(target, weights[0]);
  const bool are_alike = std::all_of(weights.begin(), weights.end(), [&](const PackedMatrix& one) {
    return KernelKindOf(target, one) == kind;
  });
  return KernelFor(target, are_alike ? kind : KernelKind::kDense, weights[0].format.dtype);
}

void MultiplyBlock(CpuTarget target, const LinearKernel& kernel, const LinearBlock& block,
                   FloatBuffer* buffer) {
  const PackedMatrix& weight = *block.weight;
  if (weight.coded == nullptr) return kernel.multiply(block);
  const CodeOrder order = weight.coded->order;
  if (order == kernel.codes_order && block.num_rows <= kernel.codes_rows_max) {
    return kernel.multiply_codes(block);
  }
  float* const expanded =
      buffer->Reserve(static_cast<size_t>(ExpandedBytes(weight.num_in)) / sizeof(float));
  const bool has_blocks = order == CodeOrder::kBlocks;
  if (has_blocks && kernel.multiply == nullptr && kernel.codes_order == CodeOrder::kQuads) {
    return MultiplyByBlocks(block, kernel.multiply_codes, reinterpret_cast<std::byte*>(expanded));
  }
  const int64_t first = block.group * kGroupWidth;
  const DType dtype = ExpandedType(target, weight.format.dtype);
  PackedMatrix dense;
  dense.num_out = std::min(kGroupWidth, weight.num_out - first);
  dense.num_in = weight.num_in;
  dense.format = dtype;
  dense.data = std::shared_ptr<void>(std::shared_ptr<void>(), expanded);  // owns nothing
  const ExpandPanel expand = FindExpandPanel(target, has_blocks ? CodeOrder::kWords : order, dtype);
  for (int64_t panel = 0; panel < dense.num_panels(); ++panel) {
    const int64_t its = first / kPanelWidth + panel;
    if (has_blocks) {
      ExpandBlockPanel(*weight.coded, its, dtype, expand, dense.panel(panel));
    } else {
      expand(*weight.coded, its, dtype, dense.panel(panel));
    }
  }
  LinearBlock of_dense = block;
  of_dense.weight = &dense;
  of_dense.group = 0;
  if (block.bias != nullptr) of_dense.bias = block.bias + first;
  kernel.multiply(of_dense);
}

}  // namespace minisgl::cpu
