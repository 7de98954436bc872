// Typed arrays in the memory of an Ops' device, with checked sizes.
//
// Copies of an array share its memory, which is freed with the last one. Upload() makes an array
// from host values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/status.h"
#include "minisgl/ops.h"

namespace minisgl {

template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;

  // Zeroed memory for the product of `extents` elements, at least one. kOutOfMemory.
  static Result<DeviceArray> Make(Ops* ops, std::initializer_list<uint64_t> extents) {
    auto count = CheckedProduct({extents.begin(), extents.size()});
    if (count) count = CheckedMul(*count == 0 ? 1 : *count, sizeof(T));
    if (!count) return Status(StatusCode::kOutOfMemory, "an array past the largest size");
    MINISGL_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, ops->Allocate(*count));
    DeviceArray array;
    array.memory_ = std::move(memory);
    return array;
  }

  T* data() const { return static_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

template <typename T>
Result<DeviceArray<T>> Upload(Ops* ops, std::span<const T> values) {
  MINISGL_ASSIGN_OR_RETURN(auto array, DeviceArray<T>::Make(ops, {values.size()}));
  MINISGL_RETURN_IF_ERROR(ops->Upload(array.data(), values.data(), values.size_bytes()));
  return array;
}

// Activations, or keys and values, of the dtype that the device computes with.
class ActivationArray {
 public:
  ActivationArray() = default;

  static Result<ActivationArray> Make(Ops* ops, DType dtype,
                                      std::initializer_list<uint64_t> extents) {
    const auto count = CheckedProduct({extents.begin(), extents.size()});
    if (!count) return Status(StatusCode::kOutOfMemory, "an array past the largest size");
    ActivationArray array;
    MINISGL_ASSIGN_OR_RETURN(array.bytes_,
                             DeviceArray<std::byte>::Make(ops, {*count, DTypeBytes(dtype)}));
    array.dtype_ = dtype;
    return array;
  }

  ActivationPtr ptr() const { return {bytes_.data(), dtype_}; }

 private:
  DeviceArray<std::byte> bytes_;
  DType dtype_ = DType::kF32;
};

}  // namespace minisgl
