#include "minisgl/kv/page_pool.h"

#include "minisgl/base/check.h"

namespace minisgl {

PagePool::PagePool(int32_t num_pages) : is_free_(static_cast<size_t>(num_pages), true) {
  free_.reserve(static_cast<size_t>(num_pages));
  for (PageId page = num_pages - 1; page >= 0; --page) free_.push_back(page);
}

PageId PagePool::Take() {
  MINISGL_CHECK(!free_.empty(), "no free page");
  const PageId page = free_.back();
  free_.pop_back();
  is_free_[static_cast<size_t>(page)] = false;
  return page;
}

void PagePool::Give(PageId page) {
  MINISGL_CHECK(page >= 0 && page < num_pages(), "page {} is not of this pool", page);
  MINISGL_CHECK(!is_free_[static_cast<size_t>(page)], "page {} is freed twice", page);
  is_free_[static_cast<size_t>(page)] = true;
  free_.push_back(page);
}

void PagePool::CheckInvariants() const {
  std::vector<bool> seen(is_free_.size(), false);
  for (PageId page : free_) {
    MINISGL_CHECK(is_free_[static_cast<size_t>(page)], "I2: page {} is listed but not free", page);
    MINISGL_CHECK(!seen[static_cast<size_t>(page)], "I2: page {} is listed twice", page);
    seen[static_cast<size_t>(page)] = true;
  }
  MINISGL_CHECK(seen == is_free_, "I2: a free page is not listed");
}

}  // namespace minisgl
