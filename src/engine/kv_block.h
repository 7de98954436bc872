// Blocks of keys and values as memory of the host holds them (engine/engine.h), and their copies
// to and from pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_storage.h"

namespace minisgl::engine {

class KvBlockLayout {
 public:
  // The layout for the layers with keys and values of their own, in `kv`, which `ops` writes. Both
  // outlive it.
  KvBlockLayout(const KvStorage& kv, const Ops& ops, int32_t page_size)
      : kv_(&kv), ops_(&ops), page_size_(page_size) {}

  int32_t num_layers() const { return static_cast<int32_t>(kv_->own_layers().size()); }
  // Bytes of one page of a layer, which are contiguous.
  int64_t PageBytes(int32_t layer) const;
  // Where page `page` of a layer begins.
  std::byte* PageAt(int32_t layer, int32_t page) const;
  // Bytes of a block of `num_pages` pages, in all layers: the same in pages and as a block.
  int64_t BlockBytes(int64_t num_pages) const;

  enum class Direction : uint8_t { kToBlock, kFromBlock };
  // Copies between a block of `num_pages` pages and its pages; `page_at(layer, i)` is where page i
  // of the block begins, null to leave it out.
  template <typename PageAtFunction>
  void Copy(Direction direction, int32_t num_pages, const PageAtFunction& page_at,
            std::byte* block) const {
    for (int32_t layer = 0; layer < num_layers(); ++layer) {
      for (int32_t i = 0; i < num_pages; ++i) {
        std::byte* const page = page_at(layer, i);
        if (page != nullptr) CopyPage(direction, layer, i, num_pages, page, block);
      }
      block += PageBytes(layer) * num_pages;
    }
  }

 private:
  // `block` begins with the layer.
  void CopyPage(Direction direction, int32_t layer, int32_t index, int32_t num_pages,
                std::byte* page, std::byte* block) const;

  const KvStorage* kv_;
  const Ops* ops_;
  int32_t page_size_;
};

}  // namespace minisgl::engine
