// Elements are copied out with memcpy, because a view may start at any address; shapes are compared
// as a whole, so that a message shows the whole shape found and the whole shape wanted.
#include "minisgl/tensor/tensor_view.h"

#include <fmt/ranges.h>

#include <cstring>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

template <typename T>
T LoadElement(const std::byte* data, int64_t index) {
  T element;
  std::memcpy(&element, data + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return element;
}

}  // namespace

int64_t TensorView::num_elements() const {
  std::optional<uint64_t> count = 1;
  for (int64_t size : shape) {
    count = CheckedMul(*count, static_cast<uint64_t>(size));
    MINISGL_CHECK(count && static_cast<int64_t>(*count) >= 0, "a view of shape {} has no size",
                  ShapeToString(shape));
  }
  return static_cast<int64_t>(*count);
}

float TensorView::At(int64_t index) const {
  MINISGL_DCHECK(index >= 0 && index < num_elements(), "element {} of shape {}", index,
                 ShapeToString(shape));
  switch (dtype) {
    case DType::kF32:
      return LoadElement<float>(data, index);
    case DType::kBF16:
      return Bf16ToFloat(LoadElement<uint16_t>(data, index));
    case DType::kF16:
      return F16ToFloat(LoadElement<uint16_t>(data, index));
    case DType::kE4M3:
      return E4M3ToFloat(LoadElement<uint8_t>(data, index));
    case DType::kE8M0:
      return E8M0ToFloat(LoadElement<uint8_t>(data, index));
    case DType::kU8:
      return LoadElement<uint8_t>(data, index);
    case DType::kI8:
      return LoadElement<int8_t>(data, index);
    case DType::kI32:
      return static_cast<float>(LoadElement<int32_t>(data, index));
    case DType::kI64:
      return static_cast<float>(LoadElement<int64_t>(data, index));
  }
  return 0;
}

std::string ShapeToString(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status ShapeChecker::Check(std::string_view tensor, const std::vector<int64_t>& shape,
                           const std::vector<Dim>& dims) {
  // A tensor that fails binds nothing, so its wrong sizes are not held against the next one.
  std::map<std::string, int64_t> bound = bound_;
  bool matches = shape.size() == dims.size();
  std::vector<std::string> wanted;
  size_t axis = 0;
  for (const Dim& dim : dims) {
    int64_t size = dim.size;
    if (dim.symbol.empty()) {
      wanted.push_back(fmt::format("{}", size));
    } else {
      const auto known = bound_.find(dim.symbol);
      wanted.push_back(known == bound_.end() ? dim.symbol
                                             : fmt::format("{} = {}", dim.symbol, known->second));
      size = matches ? bound.try_emplace(dim.symbol, shape[axis]).first->second : 0;
    }
    matches = matches && shape[axis] == size;
    ++axis;
  }
  if (!matches) {
    return BadInput("tensor \"{}\": its shape does not fit (found {}); wanted [{}]",
                    Visible(tensor, 200), ShapeToString(shape), fmt::join(wanted, ", "));
  }
  bound_ = std::move(bound);
  return Status();
}

}  // namespace minisgl
