// See kv_block.h.
#include "engine/kv_block.h"

#include <cstdint>
#include <cstring>

#include "minisgl/base/check.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::engine {
namespace {

int64_t ElementBytes(const KvLayer& layer) {
  return static_cast<int64_t>(DTypeBytes(layer.base.dtype));
}

// One head's keys, or values, of a page, and its place in a block, which has them in rows.
struct HeadPage {
  KvBlockLayout::Direction direction;
  int64_t num_tokens;  // of the page
  int64_t width;       // elements of a token
  int64_t element;     // bytes of one
  std::byte* page;
  std::byte* block;
};

void Move(KvBlockLayout::Direction direction, std::byte* page, std::byte* block, size_t bytes) {
  const bool to_block = direction == KvBlockLayout::Direction::kToBlock;
  std::memcpy(to_block ? block : page, to_block ? page : block, bytes);
}

// Tokens are columns of `kUnit` bytes in the page, and rows in the block.
template <size_t kUnit>
void MoveColumns(const HeadPage& head) {
  const int64_t units = head.width * head.element / static_cast<int64_t>(kUnit);
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int64_t token = 0; token < head.num_tokens; ++token) {
      Move(head.direction, head.page + (unit * head.num_tokens + token) * int64_t{kUnit},
           head.block + (token * units + unit) * int64_t{kUnit}, kUnit);
    }
  }
}

// Each element has kElement bytes.
template <size_t kElement>
void MoveRowPairs(const HeadPage& head) {
  for (int64_t token = 0; token < head.num_tokens; ++token) {
    std::byte* const page = head.page + (token / 2 * 2 * head.width + token % 2) * head.element;
    std::byte* const block = head.block + token * head.width * head.element;
    for (int64_t i = 0; i < head.width; ++i) {
      Move(head.direction, page + 2 * i * head.element, block + i * head.element, kElement);
    }
  }
}

void MoveHead(KvOrder order, const HeadPage& head) {
  switch (order) {
    case KvOrder::kRows:
      Move(head.direction, head.page, head.block,
           static_cast<size_t>(head.num_tokens * head.width * head.element));
      break;
    case KvOrder::kColumns:
      MINISGL_CHECK(head.element == sizeof(float), "columns of {} bytes", head.element);
      MoveColumns<sizeof(float)>(head);
      break;
    case KvOrder::kColumnPairs:
      if (head.element == 1) {
        MoveColumns<2>(head);
        break;
      }
      MINISGL_CHECK(head.element == sizeof(uint16_t), "pairs of {} bytes", head.element);
      MoveColumns<2 * sizeof(uint16_t)>(head);
      break;
    case KvOrder::kRowPairs:
      if (head.element == 1) {
        MoveRowPairs<1>(head);
        break;
      }
      MINISGL_CHECK(head.element == sizeof(uint16_t), "pairs of {} bytes", head.element);
      MoveRowPairs<sizeof(uint16_t)>(head);
      break;
  }
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

void KvBlockLayout::CopyPage(Direction direction, int32_t layer, int32_t index, int32_t num_pages,
                             std::byte* page, std::byte* block) const {
  const KvLayer& of = kv_->own_layers()[static_cast<size_t>(layer)];
  const KvOrders orders = ops_->OrdersOf(of);
  const int64_t num_heads = (of.values_in_keys ? of.page_stride : of.v_offset) / of.head_stride;
  const int64_t element = ElementBytes(of);
  const auto copy_heads = [&](KvOrder order, int64_t width, std::byte* in_page,
                              std::byte* in_block) {
    const int64_t head_bytes = int64_t{page_size_} * width * element;
    for (int64_t head = 0; head < num_heads; ++head) {
      MoveHead(order, {.direction = direction,
                       .num_tokens = page_size_,
                       .width = width,
                       .element = element,
                       .page = in_page + head * head_bytes,
                       .block = in_block + (head * num_pages + index) * head_bytes});
    }
  };
  const int64_t values = of.v_offset * element;
  copy_heads(orders.keys, of.slot_stride, page, block);
  if (of.values_in_keys) return;
  copy_heads(orders.values, of.value_slot_stride(), page + values, block + values * num_pages);
  if (!of.has_codes()) return;
  for (const int64_t scales : {of.k_scales, of.v_scales}) {
    copy_heads(KvOrder::kRows, 1, page + scales, block + scales * num_pages);
  }
}

}  // namespace minisgl::engine
