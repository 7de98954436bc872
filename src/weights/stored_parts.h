// The tensors of one stored matrix by their suffixes, for the readers of layouts
// (stored_matrix.cc).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/weights/checkpoint.h"

namespace minisgl::weights {

using Shape = std::vector<int64_t>;

// Names matrix `index` in tensors that hold the matrices of `count` experts; no count if they hold
// one matrix.
struct InStack {
  std::optional<int64_t> count;
  int32_t index = 0;
};

// The tensors of one matrix, alone or in a stack. Remembers the first error, so that a layout asks
// for all it needs and checks once.
class Parts {
 public:
  Parts(const Checkpoint& checkpoint, std::string base, const InStack& stack)
      : checkpoint_(checkpoint), base_(std::move(base)), stack_(stack) {
    MINISGL_CHECK(!stack.count || (stack.index >= 0 && stack.index < *stack.count),
                  "expert {} of {}", stack.index, *stack.count);
  }

  bool Has(std::string_view suffix) const {
    return checkpoint_.Has(fmt::format("{}{}", base_, suffix));
  }

  // The matrix's part of tensor `suffix`, of one of `dtypes`. `shapes`: those that the part may
  // have; a stack has an axis of experts before them.
  TensorView Take(std::string_view suffix, std::initializer_list<DType> dtypes,
                  std::vector<Shape> shapes) {
    if (!stack_.count) return TakeWhole(suffix, dtypes, shapes);
    for (Shape& shape : shapes) shape.insert(shape.begin(), *stack_.count);
    TensorView view = TakeWhole(suffix, dtypes, shapes);
    if (!status_.ok()) return view;
    view.shape.erase(view.shape.begin());
    view.data += static_cast<size_t>(stack_.index) * view.num_bytes();
    return view;
  }

  // The tensor `suffix`, of one of `dtypes` and one of `shapes`.
  TensorView TakeWhole(std::string_view suffix, std::initializer_list<DType> dtypes,
                       const std::vector<Shape>& shapes) {
    const std::string name = fmt::format("{}{}", base_, suffix);
    names_.push_back(name);
    const Result<TensorView> view = checkpoint_.GetStored(name);
    if (!view.ok()) {
      Fail(view.status());
      return {};
    }
    if (std::find(dtypes.begin(), dtypes.end(), view->dtype) == dtypes.end()) {
      std::string wanted;
      for (const DType dtype : dtypes) {
        wanted += fmt::format("{}{}", wanted.empty() ? "" : ", ", DTypeName(dtype));
      }
      Fail(InFile(name, BadInput("tensor \"{}\" is of type {}; wanted {}", Visible(name, 200),
                                 DTypeName(view->dtype), wanted)));
    }
    if (std::find(shapes.begin(), shapes.end(), view->shape) == shapes.end()) {
      std::string wanted;
      for (const Shape& shape : shapes) {
        wanted += (wanted.empty() ? "" : " or ") + ShapeToString(shape);
      }
      Fail(InFile(name, BadInput("tensor \"{}\": its shape does not fit (found {}); wanted {}",
                                 Visible(name, 200), ShapeToString(view->shape), wanted)));
    }
    return *view;
  }

  // The one number of a tensor, of shape [] or [1]. A stack has one for each matrix, or for all.
  float TakeNumber(std::string_view suffix) {
    std::vector<Shape> shapes = {Shape{}, Shape{1}};
    const int64_t count = stack_.count.value_or(1);
    if (stack_.count) shapes.insert(shapes.end(), {{count}, {count, 1}, {count, 1, 1}});
    const TensorView view = TakeWhole(suffix, {DType::kF32, DType::kBF16, DType::kF16}, shapes);
    if (!status_.ok()) return 1;
    const float number = view.At(view.num_elements() == 1 ? 0 : stack_.index);
    if (!std::isfinite(number) || number == 0) {
      Refuse(suffix, fmt::format("it is {}; a finite number other than 0 is needed", number));
    }
    return number;
  }

  // The one number of a tensor that may lack, or be anything: then nullopt.
  std::optional<float> FindNumber(std::string_view suffix) const {
    const Result<TensorView> view = checkpoint_.GetStored(fmt::format("{}{}", base_, suffix));
    if (!view.ok() ||
        (view->dtype != DType::kF32 && view->dtype != DType::kBF16 && view->dtype != DType::kF16)) {
      return std::nullopt;
    }
    const int64_t count = view->num_elements();
    if (count == 1) return view->At(0);
    if (!stack_.count || count != *stack_.count) return std::nullopt;
    return view->At(stack_.index);
  }

  // Fails with `what` is wrong with tensor `suffix`.
  void Refuse(std::string_view suffix, std::string_view what) {
    const std::string name = fmt::format("{}{}", base_, suffix);
    Fail(InFile(name, BadInput("tensor \"{}\": {}", Visible(name, 200), what)));
  }

  bool is_stack() const { return stack_.count.has_value(); }

  void Fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  const Status& status() const { return status_; }
  std::vector<std::string> TakeNames() { return std::move(names_); }

 private:
  Status InFile(const std::string& name, const Status& status) const {
    const std::string file = checkpoint_.FileOf(name);
    return file.empty() ? status : status.WithPrefix(Visible(file, 400));
  }

  const Checkpoint& checkpoint_;
  const std::string base_;
  const InStack stack_;
  std::vector<std::string> names_;
  Status status_;
};

}  // namespace minisgl::weights
