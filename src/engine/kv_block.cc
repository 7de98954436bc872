// See kv_block.h.
#include "engine/kv_block.h"

#include <cstring>

#include "minisgl/tensor/dtype.h"

namespace minisgl::engine {
namespace {

int64_t ElementBytes(const KvLayer& layer) {
  return static_cast<int64_t>(DTypeBytes(layer.base.dtype));
}

}  // namespace

int64_t KvBlockLayout::PageBytes(int32_t layer) const {
  const KvLayer& of = kv_->own_layers()[static_cast<size_t>(layer)];
  return of.page_stride * ElementBytes(of);
}

std::byte* KvBlockLayout::PageAt(int32_t layer, int32_t page) const {
  const KvLayer& of = kv_->own_layers()[static_cast<size_t>(layer)];
  return static_cast<std::byte*>(of.base.data) + page * PageBytes(layer);
}

int64_t KvBlockLayout::BlockBytes(int64_t num_pages) const {
  int64_t bytes = 0;
  for (int32_t layer = 0; layer < num_layers(); ++layer) bytes += PageBytes(layer) * num_pages;
  return bytes;
}

// In a page a head's tokens are contiguous, and so they are in the block, which has more of them.
void KvBlockLayout::CopyPage(Direction direction, int32_t layer, int32_t index, int32_t num_pages,
                             std::byte* page, std::byte* block) const {
  const KvLayer& of = kv_->own_layers()[static_cast<size_t>(layer)];
  const int64_t num_heads = of.v_offset / of.head_stride;
  const auto copy_heads = [&](int64_t head_bytes, std::byte* in_page, std::byte* in_block) {
    for (int64_t head = 0; head < num_heads; ++head) {
      std::byte* const a = in_page + head * head_bytes;
      std::byte* const b = in_block + (head * num_pages + index) * head_bytes;
      std::memcpy(direction == Direction::kToBlock ? b : a,
                  direction == Direction::kToBlock ? a : b, static_cast<size_t>(head_bytes));
    }
  };
  const int64_t element = ElementBytes(of);
  const int64_t key_bytes = int64_t{page_size_} * of.slot_stride * element;
  const int64_t value_bytes = int64_t{page_size_} * of.value_slot_stride() * element;
  const int64_t values = of.v_offset * element;
  copy_heads(key_bytes, page, block);
  copy_heads(value_bytes, page + values, block + values * num_pages);
}

}  // namespace minisgl::engine
