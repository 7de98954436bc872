// See stacked_matrix.h.
#include "stacked_matrix.h"

#include <algorithm>
#include <cstring>

namespace minisgl::cuda {
namespace {

template <DType kDType>
struct Element {
  using Bits = uint16_t;
};
template <>
struct Element<DType::kF32> {
  using Bits = uint32_t;
};

template <DType kDType>
float Widen(typename Element<kDType>::Bits bits) {
  if constexpr (kDType == DType::kF32) {
    return std::bit_cast<float>(bits);
  } else {
    return kDType == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
  }
}

template <DType kDType>
typename Element<kDType>::Bits Narrow(float value) {
  if constexpr (kDType == DType::kF32) {
    return std::bit_cast<uint32_t>(value);
  } else {
    return kDType == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  }
}

// `src` may have any alignment.
template <DType kTo, DType kFrom>
void Convert(std::byte* dst, const std::byte* src, size_t count) {
  using From = typename Element<kFrom>::Bits;
  using To = typename Element<kTo>::Bits;
  for (size_t i = 0; i < count; ++i) {
    From bits;
    std::memcpy(&bits, src + i * sizeof(From), sizeof(From));
    const To converted = Narrow<kTo>(Widen<kFrom>(bits));
    std::memcpy(dst + i * sizeof(To), &converted, sizeof(To));
  }
}

template <DType kTo>
void ConvertFrom(DType from, std::byte* dst, const std::byte* src, size_t count) {
  if (from == kTo) {
    std::memcpy(dst, src, count * DTypeBytes(kTo));
    return;
  }
  switch (from) {
    case DType::kF32:
      return Convert<kTo, DType::kF32>(dst, src, count);
    case DType::kBF16:
      return Convert<kTo, DType::kBF16>(dst, src, count);
    case DType::kF16:
      return Convert<kTo, DType::kF16>(dst, src, count);
  }
}

}  // namespace

StackedMatrix::StackedMatrix(std::span<const TensorView> parts, DType dtype)
    : parts_(parts), dtype_(dtype) {
  MINISGL_CHECK(!parts.empty() && parts[0].shape.size() == 2, "a stacked matrix without parts");
  num_in_ = parts[0].shape[1];
  for (const TensorView& part : parts) {
    MINISGL_CHECK(part.shape.size() == 2 && part.shape[1] == num_in_,
                  "a part of shape {} in a matrix of {} inputs", ShapeToString(part.shape),
                  num_in_);
    num_out_ += part.shape[0];
  }
}

void StackedMatrix::Read(std::byte* out, size_t offset, size_t num_bytes) const {
  const size_t width = DTypeBytes(dtype_);
  MINISGL_CHECK(offset % width == 0 && num_bytes % width == 0, "the range cuts an element");
  size_t first = offset / width;
  size_t left = num_bytes / width;
  for (const TensorView& part : parts_) {
    const size_t size = static_cast<size_t>(part.num_elements());
    if (first < size && left > 0) {
      const size_t count = std::min(left, size - first);
      const std::byte* const src = part.data + first * DTypeBytes(part.dtype);
      switch (dtype_) {
        case DType::kF32:
          ConvertFrom<DType::kF32>(part.dtype, out, src, count);
          break;
        case DType::kBF16:
          ConvertFrom<DType::kBF16>(part.dtype, out, src, count);
          break;
        case DType::kF16:
          ConvertFrom<DType::kF16>(part.dtype, out, src, count);
          break;
      }
      out += count * width;
      left -= count;
      first += count;
    }
    first -= std::min(first, size);
  }
  MINISGL_CHECK(left == 0, "{} elements past the end of a matrix", left);
}

}  // namespace minisgl::cuda
