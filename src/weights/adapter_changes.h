// The changes of an adapter, whatever file they are read from.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/base/prefix_key.h"
#include "minisgl/tensor/tensor_view.h"
#include "minisgl/weights/adapter.h"

namespace minisgl::weights {

// All tensors, with those that are absent.
std::vector<const TensorView*> TensorsOf(const AdapterChange& change);
ContentHash HashOfChanges(const std::vector<AdapterChange>& changes);
uint64_t BytesOfChanges(const std::vector<AdapterChange>& changes);

}  // namespace minisgl::weights
