// A read-only view of a dense row-major tensor, and checks that bind shapes by symbol.
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

// Does not own `data`, which may have any alignment (safetensors files do not align): copy elements
// with memcpy.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t num_elements() const;  // 1 for a scalar
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * DTypeBytes(dtype); }
  float At(int64_t index) const;  // element `index` in row-major order, widened
};

std::string ShapeToString(const std::vector<int64_t>& shape);  // "[2, 3]"

// One named dimension: a number that must match, or a symbol bound on first sight and compared ever
// after.
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
  // Fixes a symbol before any tensor is seen.
  void Bind(const std::string& symbol, int64_t size) { bound_[symbol] = size; }
  // kBadInput naming the tensor, the shape found and the shape wanted.
  Status Check(std::string_view tensor, const std::vector<int64_t>& shape,
               const std::vector<Dim>& dims);

 private:
  std::map<std::string, int64_t> bound_;
};

}  // namespace minisgl
