// The keys and values of every layer: num_pages pages, and the dummy page that padding may write
// to. With window pages, layers with a sliding window have num_window_pages and a dummy instead.
// A page is the target's layers and, behind them, the layers of models beside it, which have no
// window pages.
//
// Layout of a layer, heads first, so that one head's keys of a page are contiguous:
//   [num_pages + 1][keys [num_kv_heads][page_size][head_dim],
//                   values [num_kv_heads][page_size][value_dim]]
// without values if they are part of the keys (LayerShape::values_in_keys), and, if they are codes,
// with the scales of a page behind them:
//                   scales of keys [num_kv_heads][page_size], of values likewise
// Each layer is one allocation, zeroed on first touch: unused pages cost only address space. A
// layer that reads the keys and values of another, or has no attention, has none.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/engine/kv_kind.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

// The types of keys and values: codes in layers that can have them (IsCodedLayer), and `dtype` in
// the others and in all of kAuto.
struct KvFormat {
  KvFormat(DType type, KvKind kind_of_all = KvKind::kAuto)  // NOLINT: reads as a type
      : dtype(type), kind(kind_of_all) {}
  DType dtype;
  KvKind kind;
};

// True if KvKind::kFp8 keeps the layer's keys and values as codes: with attention to all keys, and
// heads whose widths are multiples of 16. A window is short, and keys that hold their values are
// few and read by all heads: they stay as they are.
bool IsCodedLayer(const LayerConfig& layer, const LayerShape& shape);
// The type of the keys and values of a layer.
DType KvDTypeOf(const KvFormat& format, const LayerConfig& layer, const LayerShape& shape);

class KvStorage {
 public:
  // `beside`: the layers of models beside the target.
  static Result<KvStorage> Make(const ModelConfig& config, const KvFormat& format,
                                int32_t num_pages, int32_t page_size, Ops* ops,
                                int32_t num_window_pages = 0,
                                std::span<const ModelConfig> beside = {});

  // [layers] of the target; equal for layers that share keys and values.
  const std::vector<KvLayer>& layers() const { return layers_; }
  // The same of `beside[index]` of Make.
  const std::vector<KvLayer>& beside(size_t index) const { return beside_[index]; }
  // All layers that have keys and values of their own, in order.
  const std::vector<KvLayer>& own_layers() const { return own_layers_; }

 private:
  // Takes the memory of a model's layers.
  Result<std::vector<KvLayer>> Take(const ModelConfig& config, const KvFormat& format,
                                    int32_t num_pages, int32_t page_size, Ops* ops,
                                    int32_t num_window_pages);

  std::vector<ActivationArray> memory_;
  std::vector<KvLayer> layers_;
  std::vector<std::vector<KvLayer>> beside_;
  std::vector<KvLayer> own_layers_;
};

// Bytes of one token in all layers. Nothing if that exceeds 2^64.
std::optional<uint64_t> KvBytesPerToken(const ModelConfig& config, const KvFormat& format);
// Bytes of one token in the layers with a sliding window.
std::optional<uint64_t> WindowBytesPerToken(const ModelConfig& config, const KvFormat& format);
// Adds the layers with keys and values of their own, and those of them that have codes.
void CountKvLayers(const ModelConfig& config, const KvFormat& format, int32_t* all, int32_t* coded);

}  // namespace minisgl::engine
