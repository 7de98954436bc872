// Sizes and strides of the KV storage; see kv_storage.h for the layout.
#include "engine/kv_storage.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::engine {

namespace {

// Bytes of a token's keys and values in one layer, with their scales.
std::optional<uint64_t> LayerTokenBytes(const KvFormat& format, const LayerConfig& layer,
                                        const LayerShape& shape) {
  const DType dtype = KvDTypeOf(format, layer, shape);
  const auto value_dim = static_cast<uint64_t>(shape.values_in_keys ? 0 : shape.value_dim);
  const uint64_t scales = dtype == DType::kE4M3 ? 2 : 0;
  const uint64_t elements = static_cast<uint64_t>(shape.head_dim) + value_dim;  // 31 bits each
  const uint64_t factors[] = {static_cast<uint64_t>(shape.num_kv_heads),
                              elements * DTypeBytes(dtype) + scales};
  return CheckedProduct(factors);
}

// Calls visit(layer, shape, count) for `count` equal layers with keys and values of their own.
template <typename Visit>
void ForEachKvLayer(const ModelConfig& config, const Visit& visit) {
  const auto num_listed = static_cast<int32_t>(std::ssize(config.layers));
  for (int32_t i = 0; i < std::min(num_listed, config.num_layers); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const bool has_keys = HasAttention(layer.mixer) && layer.kv_layer < 0;
    if (has_keys) visit(layer, LayerShapeOf(config, i), 1);
  }
  if (config.num_layers > num_listed) {
    visit(LayerConfig(), LayerShapeOf(config, num_listed), config.num_layers - num_listed);
  }
}

// Bytes of a token in the layers with keys and values of their own that `counts` is true for.
template <typename Counts>
std::optional<uint64_t> TokenBytes(const ModelConfig& config, const KvFormat& format,
                                   const Counts& counts) {
  std::optional<uint64_t> sum = 0;
  ForEachKvLayer(config, [&](const LayerConfig& layer, const LayerShape& shape, int32_t count) {
    if (!counts(layer)) return;
    auto bytes = LayerTokenBytes(format, layer, shape);
    if (bytes) bytes = CheckedMul(*bytes, static_cast<uint64_t>(count));
    sum = sum && bytes ? CheckedAdd(*sum, *bytes) : std::nullopt;
  });
  return sum;
}

// The layer in pages of `page_size` tokens; its memory is to be set.
KvLayer LayOut(DType dtype, const LayerShape& shape, int32_t page_size) {
  const int64_t k_head_stride = int64_t{page_size} * shape.head_dim;
  const bool in_keys = shape.values_in_keys;
  const int64_t v_head_stride = in_keys ? k_head_stride : int64_t{page_size} * shape.value_dim;
  const int64_t k_elements = k_head_stride * shape.num_kv_heads;
  const int64_t elements = in_keys ? k_elements : k_elements + v_head_stride * shape.num_kv_heads;
  KvLayer layer = {.base = {nullptr, dtype},
                   .page_stride = elements,
                   .slot_stride = shape.head_dim,
                   .head_stride = k_head_stride,
                   .v_offset = in_keys ? shape.head_dim - shape.value_dim : k_elements,
                   .page_size = page_size,
                   .v_slot_stride = in_keys ? shape.head_dim : shape.value_dim,
                   .v_head_stride = v_head_stride,
                   .values_in_keys = in_keys};
  if (layer.has_codes()) {
    const int64_t scales = int64_t{page_size} * shape.num_kv_heads;
    layer.k_scales = elements;
    layer.v_scales = elements + scales;
    layer.page_stride = elements + 2 * scales;
  }
  return layer;
}

}  // namespace

bool IsCodedLayer(const LayerConfig& layer, const LayerShape& shape) {
  constexpr int kMultiple = 16;
  return layer.sliding_window == 0 && !shape.values_in_keys && shape.head_dim % kMultiple == 0 &&
         shape.value_dim % kMultiple == 0;
}

DType KvDTypeOf(const KvFormat& format, const LayerConfig& layer, const LayerShape& shape) {
  return format.kind == KvKind::kFp8 && IsCodedLayer(layer, shape) ? DType::kE4M3 : format.dtype;
}

std::optional<uint64_t> KvBytesPerToken(const ModelConfig& config, const KvFormat& format) {
  return TokenBytes(config, format, [](const LayerConfig&) { return true; });
}

std::optional<uint64_t> WindowBytesPerToken(const ModelConfig& config, const KvFormat& format) {
  return TokenBytes(config, format,
                    [](const LayerConfig& layer) { return layer.sliding_window > 0; });
}

void CountKvLayers(const ModelConfig& config, const KvFormat& format, int32_t* all,
                   int32_t* coded) {
  ForEachKvLayer(config, [&](const LayerConfig& layer, const LayerShape& shape, int32_t count) {
    *all += count;
    if (KvDTypeOf(format, layer, shape) == DType::kE4M3) *coded += count;
  });
}

Result<KvStorage> KvStorage::Make(const ModelConfig& config, const KvFormat& format,
                                  int32_t num_pages, int32_t page_size, Ops* ops,
                                  int32_t num_window_pages, std::span<const ModelConfig> beside) {
  KvStorage storage;
  MINISGL_ASSIGN_OR_RETURN(
      storage.layers_, storage.Take(config, format, num_pages, page_size, ops, num_window_pages));
  for (const ModelConfig& other : beside) {
    if (!other.draft_head.kv_layers.empty()) {  // they are the target's
      std::vector<KvLayer>& layers = storage.beside_.emplace_back();
      for (const int32_t layer : other.draft_head.kv_layers) {
        layers.push_back(storage.layers_[static_cast<size_t>(layer)]);
      }
      continue;
    }
    MINISGL_ASSIGN_OR_RETURN(storage.beside_.emplace_back(),
                             storage.Take(other, format, num_pages, page_size, ops, 0));
  }
  return storage;
}

Result<std::vector<KvLayer>> KvStorage::Take(const ModelConfig& config, const KvFormat& format,
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
    KvLayer laid = LayOut(KvDTypeOf(format, layer, shape), shape, page_size);
    const bool has_window = num_window_pages > 0 && layer.sliding_window > 0;
    const int32_t pages = has_window ? num_window_pages : num_pages;
    MINISGL_ASSIGN_OR_RETURN(auto memory,
                             ActivationArray::Make(ops, laid.base.dtype,
                                                   {static_cast<uint64_t>(pages) + 1,
                                                    static_cast<uint64_t>(laid.page_stride)}));
    laid.base = memory.ptr();
    layers.push_back(laid);
    own_layers_.push_back(layers.back());
    memory_.push_back(std::move(memory));
  }
  return layers;
}

}  // namespace minisgl::engine
