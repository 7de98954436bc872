// Sizes and strides of the KV storage; see kv_storage.h for the layout.
#include "engine/kv_storage.h"

#include <utility>

#include "minisgl/base/checked_math.h"

namespace minisgl {

std::optional<uint64_t> KvBytesPerToken(const ModelConfig& config, DType dtype) {
  const uint64_t factors[] = {static_cast<uint64_t>(config.num_layers), 2,
                              static_cast<uint64_t>(config.num_kv_heads),
                              static_cast<uint64_t>(config.head_dim), DTypeBytes(dtype)};
  return CheckedProduct(factors);
}

Result<KvStorage> KvStorage::Make(const ModelConfig& config, int32_t num_pages, int32_t page_size,
                                  Ops* ops) {
  KvStorage storage;
  const int64_t head_stride = int64_t{page_size} * config.head_dim;
  const int64_t v_offset = head_stride * config.num_kv_heads;
  const int64_t page_stride = 2 * v_offset;
  for (int32_t i = 0; i < config.num_layers; ++i) {
    MINISGL_ASSIGN_OR_RETURN(auto memory,
                             ActivationArray::Make(ops, ops->activation_dtype(),
                                                   {static_cast<uint64_t>(num_pages) + 1,
                                                    static_cast<uint64_t>(page_stride)}));
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

}  // namespace minisgl
