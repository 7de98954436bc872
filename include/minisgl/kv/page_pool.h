// The free pages of the KV pool. Ids only; one thread.
//
// Reuse is last in, first out. A page is reused as soon as possible after it is freed, so tests see
// a use after free at once, not only after the pool has cycled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

class PagePool {
 public:
  // At first all of [0, num_pages) are free.
  explicit PagePool(int32_t num_pages);

  int32_t num_pages() const { return static_cast<int32_t>(is_free_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  bool IsFree(PageId page) const { return is_free_[static_cast<size_t>(page)]; }

  PageId Take();           // REQUIRES num_free() > 0
  void Give(PageId page);  // REQUIRES taken: a second give is a bug and aborts

  // Checks that the list and the flags agree and that no page is listed twice.
  void CheckInvariants() const;

 private:
  std::vector<PageId> free_;  // a stack
  std::vector<bool> is_free_;
};

}  // namespace minisgl
