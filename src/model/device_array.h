// Typed arrays in the memory of an Ops' device, with every size checked.
//
// A DeviceArray owns its memory and is moved, not copied. What fills one from host values goes
// through UploadFloats, the one place that assumes the device's memory is the host's (as it is on
// the CPU).
#pragma once

#include <cstdint>
#include <cstring>
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

  // Zeroed memory for the product of `extents` elements (at least one). kOutOfMemory where there is
  // none.
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

inline Result<DeviceArray<float>> UploadFloats(Ops* ops, std::span<const float> values) {
  MINISGL_ASSIGN_OR_RETURN(auto array, DeviceArray<float>::Make(ops, {values.size()}));
  if (!values.empty()) std::memcpy(array.data(), values.data(), values.size_bytes());
  return array;
}

}  // namespace minisgl
