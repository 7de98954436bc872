// The window pages: where layers with a sliding window keep the keys and values of a page. A page
// of the KV pool has one or none; one that has none is a hole, and what such layers knew of its
// positions is gone. Ids and counts only; one thread.
//
// A running request claims the pages that its window reaches. A window page is in exactly one
// place: free; held by a page that somebody claims; or held by a page that nobody claims, and then
// whoever needs a window page may reclaim it: least recently claimed first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

class WindowPool {
 public:
  // All window pages are free at first, and all pages holes. REQUIRES 1 <= num_window_pages <=
  // num_pages.
  WindowPool(int32_t num_pages, int32_t num_window_pages);

  int32_t num_window_pages() const { return static_cast<int32_t>(page_of_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  // What Assign can give now.
  int32_t num_available() const { return num_free() + num_reclaimable_; }
  int64_t num_reclaimed() const { return num_reclaimed_; }

  bool Has(PageId page) const { return WindowOf(page) != kNone; }
  // The window page of `page`; -1: it is a hole.
  WindowPageId WindowOf(PageId page) const { return window_of_[static_cast<size_t>(page)]; }

  // Gives a hole a window page; the page it is reclaimed from becomes a hole. REQUIRES
  // num_available() > 0.
  void Assign(PageId page);
  // Frees the window page of `page`; nothing where it is a hole. REQUIRES no claim.
  void Release(PageId page);
  // One more, or one less, who needs what the window page of `page` holds. REQUIRES no hole.
  void Claim(PageId page);
  void Unclaim(PageId page);
  // The window page of `from`, if it has one, goes to `to`. REQUIRES no claim of `from`, and `to` a
  // hole.
  void Move(PageId from, PageId to);

  // Each window page in exactly one place; claims recounted. `claims`: every claim held now, one
  // entry each.
  void CheckInvariants(std::span<const PageId> claims) const;

 private:
  static constexpr int32_t kNone = -1;
  // Neighbours in the ring of what may be reclaimed, kNone where not listed. The entry past the
  // last window page is the ring's end: its `fresher` is the oldest, its `older` the freshest.
  struct Link {
    WindowPageId older = kNone, fresher = kNone;
  };

  size_t end() const { return page_of_.size(); }
  void List(WindowPageId window_page);  // as the freshest
  void Unlist(WindowPageId window_page);
  bool IsListed(WindowPageId window_page) const {
    return links_[static_cast<size_t>(window_page)].older != kNone;
  }

  std::vector<WindowPageId> window_of_;  // [pages]
  std::vector<int32_t> claims_;          // [pages]
  std::vector<PageId> page_of_;          // [window pages] kNone: free
  std::vector<WindowPageId> free_;       // a stack, as PagePool's
  std::vector<Link> links_;              // [window pages + 1]
  int32_t num_reclaimable_ = 0;
  int64_t num_reclaimed_ = 0;
};

}  // namespace minisgl
