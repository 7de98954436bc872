// Sizes and strides of the KV storage; see kv_storage.h for the layout.
#include "engine/kv_storage.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

namespace {

// Elements of a token's keys and values.
std::optional<uint64_t> TokenElements(const LayerShape& shape) {
  const auto value_dim = static_cast<uint64_t>(shape.values_in_keys ? 0 : shape.value_dim);
  const uint64_t factors[] = {static_cast<uint64_t>(shape.num_kv_heads),
                              static_cast<uint64_t>(shape.head_dim) + value_dim};
  return CheckedProduct(factors);
}

// Bytes of a token in the layers with keys and values of their own that `counts` is true for.
template <typename Counts>
std::optional<uint64_t> TokenBytes(const ModelConfig& config, DType dtype, const Counts& counts) {
  std::optional<uint64_t> sum = 0;
  const auto add = [&](std::optional<uint64_t> elements, uint64_t num_layers) {
    if (elements) elements = CheckedMul(*elements, num_layers);
    sum = sum && elements ? CheckedAdd(*sum, *elements) : std::nullopt;
  };
  const auto num_listed = static_cast<int32_t>(std::ssize(config.layers));
  for (int32_t i = 0; i < std::min(num_listed, config.num_layers); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const bool has_keys = HasAttention(layer.mixer) && layer.kv_layer < 0;
    if (has_keys && counts(layer)) add(TokenElements(LayerShapeOf(config, i)), 1);
  }
  if (config.num_layers > num_listed && counts(LayerConfig())) {
    add(TokenElements(LayerShapeOf(config, num_listed)),
        static_cast<uint64_t>(config.num_layers - num_listed));
  }
  return sum ? CheckedMul(*sum, DTypeBytes(dtype)) : std::nullopt;
}

}  // namespace

std::optional<uint64_t> KvBytesPerToken(const ModelConfig& config, DType dtype) {
  return TokenBytes(config, dtype, [](const LayerConfig&) { return true; });
}

std::optional<uint64_t> WindowBytesPerToken(const ModelConfig& config, DType dtype) {
  return TokenBytes(config, dtype,
                    [](const LayerConfig& layer) { return layer.sliding_window > 0; });
}

Result<KvStorage> KvStorage::Make(const ModelConfig& config, DType dtype, int32_t num_pages,
                                  int32_t page_size, Ops* ops, int32_t num_window_pages,
                                  std::span<const ModelConfig> beside) {
  KvStorage storage;
  MINISGL_ASSIGN_OR_RETURN(
      storage.layers_, storage.Take(config, dtype, num_pages, page_size, ops, num_window_pages));
  for (const ModelConfig& other : beside) {
    if (!other.draft_head.kv_layers.empty()) {  // they are the target's
      std::vector<KvLayer>& layers = storage.beside_.emplace_back();
      for (const int32_t layer : other.draft_head.kv_layers) {
        layers.push_back(storage.layers_[static_cast<size_t>(layer)]);
      }
      continue;
    }
    MINISGL_ASSIGN_OR_RETURN(storage.beside_.emplace_back(),
                             storage.Take(other, dtype, num_pages, page_size, ops, 0));
  }
  return storage;
}

Result<std::vector<KvLayer>> KvStorage::Take(const ModelConfig& config, DType dtype,
                                             int32_t num_pages, int32_t page_size, Ops* ops,
                                             int32_t num_window_pages) {
  std::vector<KvLayer> layers;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const LayerConfig layer = at < config.layers.size() ? config.layers[at] : LayerConfig();
    if (layer.kv_layer >= 0) {
      MINISGL_CHECK(layer.kv_layer < i, "layer {} reads keys of layer {}", i, layer.kv_layer);
      layers.push_back(layers[static_cast<size_t>(layer.kv_layer)]);
      continue;
    }
    if (!HasAttention(layer.mixer)) {
      layers.push_back(KvLayer());
      continue;
    }
    const LayerShape shape = LayerShapeOf(config, i);
    const int64_t k_head_stride = int64_t{page_size} * shape.head_dim;
    const bool in_keys = shape.values_in_keys;
    const int64_t v_head_stride = in_keys ? k_head_stride : int64_t{page_size} * shape.value_dim;
    const int64_t k_elements = k_head_stride * shape.num_kv_heads;
    const int64_t page_stride =
        in_keys ? k_elements : k_elements + v_head_stride * shape.num_kv_heads;
    const bool has_window = num_window_pages > 0 && layer.sliding_window > 0;
    const int32_t pages = has_window ? num_window_pages : num_pages;
    MINISGL_ASSIGN_OR_RETURN(
        auto memory,
        ActivationArray::Make(
            ops, dtype, {static_cast<uint64_t>(pages) + 1, static_cast<uint64_t>(page_stride)}));
    layers.push_back({.base = memory.ptr(),
                      .page_stride = page_stride,
                      .slot_stride = shape.head_dim,
                      .head_stride = k_head_stride,
                      .v_offset = in_keys ? shape.head_dim - shape.value_dim : k_elements,
                      .page_size = page_size,
                      .v_slot_stride = in_keys ? shape.head_dim : shape.value_dim,
                      .v_head_stride = v_head_stride,
                      .values_in_keys = in_keys});
    own_layers_.push_back(layers.back());
    memory_.push_back(std::move(memory));
  }
  return layers;
}

}  // namespace minisgl::engine
