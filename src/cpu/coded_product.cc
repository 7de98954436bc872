// See coded_product.h.
#include "cpu/coded_product.h"

#include <algorithm>

namespace minisgl::cpu {
namespace {

// The kernel for a matrix that is not kept as codes, or that is expanded.
LinearKernel DenseKernelOf(CpuTarget target, const PackedMatrix& weight) {
  const WeightFormat& format = weight.format;
  return FindLinearKernel(target, weight.coded == nullptr ? format : WeightFormat(format.dtype));
}

}  // namespace

int64_t ExpandedBytes(int64_t num_in) {
  return (num_in + num_in % 2) * kGroupWidth * static_cast<int64_t>(sizeof(float));
}

DType ExpandedType(CpuTarget target, DType dtype) {
  return dtype == DType::kBF16 && RoundsToBf16(target) ? DType::kBF16 : DType::kF32;
}

CodeOrders CodeOrdersOf(CpuTarget target, DType dtype) {
  const bool by_tiles = UsesTiles(target) && dtype == DType::kBF16;
  const CodeOrder order = by_tiles ? CodeOrder::kLines : CodeOrder::kWords;
  CodeOrders orders(HasIntegerProductsOfType(target, dtype) ? CodeOrder::kWords : order, order,
                    HasByteProductsOfType(target, dtype) ? CodeOrder::kQuads : order);
  orders.quantized_int8 = WidensInt8(target, dtype);
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
  if (weight.coded == nullptr || !HasIntegerProductsOfType(target, weight.format.dtype)) {
    return false;
  }
  constexpr int64_t kStep = kQuantBlock / 2;
  const CodedMatrix& codes = *weight.coded;
  const bool has_steps = codes.num_groups() == 1 || codes.group_inputs % kStep == 0;
  // e2m1 has no zero points in any format.
  return codes.order == CodeOrder::kWords && (codes.has_4_bits() || codes.has_6_bits()) &&
         has_steps && !(codes.kind == CodeKind::kSigned4 && codes.has_zeros);
}

LinearKernel KernelOf(CpuTarget target, const PackedMatrix& weight) {
  if (weight.coded != nullptr && weight.coded->order == CodeOrder::kQuads) {
    return HasTiles(target) ? BytesAmxLinearKernel() : BytesStandInLinearKernel();
  }
  if (!HasIntegerProducts(target, weight)) return DenseKernelOf(target, weight);
  return CodesInt8LinearKernels()[static_cast<size_t>(target)]();
}

LinearKernel KernelOf(CpuTarget target, std::span<const PackedMatrix> weights) {
  const auto is_in_quads = [](const PackedMatrix& weight) {
    return weight.coded != nullptr && weight.coded->order == CodeOrder::kQuads;
  };
  if (std::all_of(weights.begin(), weights.end(), is_in_quads)) return KernelOf(target, weights[0]);
  for (const PackedMatrix& weight : weights) {
    if (!HasIntegerProducts(target, weight)) return DenseKernelOf(target, weight);
  }
  return KernelOf(target, weights[0]);
}

void MultiplyBlock(CpuTarget target, const LinearKernel& kernel, const LinearBlock& block,
                   FloatBuffer* buffer) {
  const PackedMatrix& weight = *block.weight;
  if (weight.coded == nullptr) return kernel.multiply(block);
  const CodeOrder order = weight.coded->order;
  if (order == kernel.codes_order && block.num_rows <= kernel.codes_rows_max) {
    return kernel.multiply_codes(block);
  }
  const int64_t first = block.group * kGroupWidth;
  const DType dtype = ExpandedType(target, weight.format.dtype);
  float* const expanded =
      buffer->Reserve(static_cast<size_t>(ExpandedBytes(weight.num_in)) / sizeof(float));
  PackedMatrix dense;
  dense.num_out = std::min(kGroupWidth, weight.num_out - first);
  dense.num_in = weight.num_in;
  dense.format = dtype;
  dense.data = std::shared_ptr<void>(std::shared_ptr<void>(), expanded);  // owns nothing
  const ExpandPanel expand = FindExpandPanel(target, order, dtype);
  for (int64_t panel = 0; panel < dense.num_panels(); ++panel) {
    expand(*weight.coded, first / kPanelWidth + panel, dtype, dense.panel(panel));
  }
  LinearBlock of_dense = block;
  of_dense.weight = &dense;
  of_dense.group = 0;
  if (block.bias != nullptr) of_dense.bias = block.bias + first;
  kernel.multiply(of_dense);
}

}  // namespace minisgl::cpu
