// A read-only view of a dense row-major tensor, and shape checks with symbolic dimensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl {

// Does not own `data`. `data` may be unaligned (safetensors files do not align): read elements with
// memcpy.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t num_elements() const;  // 1 for a scalar
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * DTypeBytes(dtype); }
  // Element `index` in row-major order, as f32 (integers above 2^24 are rounded).
  float At(int64_t index) const;
};

std::string ShapeToString(const std::vector<int64_t>& shape);  // "[2, 3]"

// An expected dimension: a number, or a symbol that is bound at its first use and must match at
// every later one.
struct Dim {
  Dim(int64_t number) : size(number) {}    // NOLINT: literals read as dimensions
  Dim(const char* name) : symbol(name) {}  // NOLINT
  std::string symbol;                      // empty for a number
  int64_t size = -1;                       // of a number; unused for a symbol
};

// Checks the shapes of several tensors against each other:
//   ShapeChecker shapes;
//   RETURN_IF_ERROR(shapes.Check("q_proj", q.shape, {"HD", "D"}));
class ShapeChecker {
 public:
  // Binds a symbol in advance.
  void Bind(const std::string& symbol, int64_t size) { bound_[symbol] = size; }
  // kBadInput with the name of the tensor, its shape and the expected one.
  Status Check(std::string_view tensor, const std::vector<int64_t>& shape,
               const std::vector<Dim>& dims);

 private:
  std::map<std::string, int64_t> bound_;
};

}  // namespace minisgl
