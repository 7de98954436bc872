// Sizes and strides of the KV storage; see kv_storage.h for the layout.
#include "engine/kv_storage.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

namespace {

std::optional<uint64_t> TokenBytes(const ModelConfig& config, int64_t num_layers, DType dtype) {
  const uint64_t factors[] = {static_cast<uint64_t>(num_layers), 2,
                              static_cast<uint64_t>(config.num_kv_heads),
                              static_cast<uint64_t>(config.head_dim), DTypeBytes(dtype)};
  return CheckedProduct(factors);
}

}  // namespace

std::optional<uint64_t> KvBytesPerToken(const ModelConfig& config, DType dtype) {
  return TokenBytes(config, config.num_layers, dtype);
}

std::optional<uint64_t> WindowBytesPerToken(const ModelConfig& config, DType dtype) {
  const auto num_windowed =
      std::count_if(config.layers.begin(), config.layers.end(),
                    [](const LayerConfig& layer) { return layer.sliding_window > 0; });
  return TokenBytes(config, num_windowed, dtype);
}

Result<KvStorage> KvStorage::Make(const ModelConfig& config, DType dtype, int32_t num_pages,
                                  int32_t page_size, Ops* ops, int32_t num_window_pages) {
  KvStorage storage;
  const int64_t head_stride = int64_t{page_size} * config.head_dim;
  const int64_t v_offset = head_stride * config.num_kv_heads;
  const int64_t page_stride = 2 * v_offset;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const bool has_window =
        num_window_pages > 0 && config.layers[static_cast<size_t>(i)].sliding_window > 0;
    const int32_t pages = has_window ? num_window_pages : num_pages;
    MINISGL_ASSIGN_OR_RETURN(
        auto memory,
        ActivationArray::Make(
            ops, dtype, {static_cast<uint64_t>(pages) + 1, static_cast<uint64_t>(page_stride)}));
    storage.layers_.push_back({.base = memory.ptr(),
                               .page_stride = page_stride,
                               .slot_stride = config.head_dim,
                               .head_stride = head_stride,
                               .v_offset = v_offset,
                               .page_size = page_size});
    storage.memory_.push_back(std::move(memory));
  }
  return storage;
}

}  // namespace minisgl::engine
