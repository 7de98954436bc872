// What is said of quantized weights that a device keeps as codes.
#pragma once

#include <fmt/core.h>

#include <string>

#include "minisgl/engine/model_engine.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::load {

// Why codes are kept that could be expanded: a line if the expanded weights do not fit, else "".
inline std::string CodesText(const MemoryPlan& plan) {
  if (!plan.codes_to_fit) return "";
  return fmt::format("quantized weights are kept as codes: in {} they do not fit the GPU",
                     DTypeName(plan.weight_format.dtype));
}

}  // namespace minisgl::load
