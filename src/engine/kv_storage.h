// The keys and values of every layer: num_pages pages and one more, the dummy, that padding may
// write to. Where there are window pages, layers with a sliding window have num_window_pages and a
// dummy instead.
//
// Layout of a layer, heads first, so that one head's keys of a page are one run of memory:
//   [num_pages + 1][K, V][num_kv_heads][page_size][head_dim]
// of the dtype that is asked for (KvDType).
// One allocation a layer, zeroed on first touch: pages that are never used cost address space only.
#pragma once

#include <optional>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"
#include "model/device_array.h"

namespace minisgl::engine {

class KvStorage {
 public:
  static Result<KvStorage> Make(const ModelConfig& config, DType dtype, int32_t num_pages,
                                int32_t page_size, Ops* ops, int32_t num_window_pages = 0);

  const std::vector<KvLayer>& layers() const { return layers_; }

 private:
  std::vector<ActivationArray> memory_;
  std::vector<KvLayer> layers_;
};

// Bytes of one token in all layers. Nothing where that is past 2^64.
std::optional<uint64_t> KvBytesPerToken(const ModelConfig& config, DType dtype);
// The same in the layers with a sliding window alone.
std::optional<uint64_t> WindowBytesPerToken(const ModelConfig& config, DType dtype);

}  // namespace minisgl::engine
