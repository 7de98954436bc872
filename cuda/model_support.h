// Which models there are kernels for.
#pragma once

#include "minisgl/device_ops.h"

namespace minisgl::cuda {

// See DeviceOps::CheckSupported.
Status CheckModelSupported(const ModelShape& shape);

}  // namespace minisgl::cuda
