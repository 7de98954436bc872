// The window pages: storage for the keys and values of a page in layers with a sliding window. Ids
// and counts only; one thread.
//
// A page of the KV pool has one window page or none. A page without one is a hole: such layers have
// lost the keys and values of its positions. A running request claims the pages that its window
// reaches. A window page is in exactly one place:
//   - free
//   - held by a page with claims
//   - held by a page without claims: it may be reclaimed for another page, least recently claimed
//     first
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "minisgl/base/ids.h"

namespace minisgl {

class WindowPool {
 public:
  // At first all window pages are free and all pages are holes. REQUIRES 1 <= num_window_pages <=
  // num_pages.
  WindowPool(int32_t num_pages, int32_t num_window_pages);

  int32_t num_window_pages() const { return static_cast<int32_t>(page_of_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  // Window pages that Assign can give now.
  int32_t num_available() const { return num_free() + num_reclaimable_; }
  int64_t num_reclaimed() const { return num_reclaimed_; }

  bool Has(PageId page) const { return WindowOf(page) != kNone; }
  // The window page of `page`; -1: it is a hole.
  WindowPageId WindowOf(PageId page) const { return window_of_[static_cast<size_t>(page)]; }

  // Gives a window page to `page`. If it is reclaimed from another page, that page becomes a hole.
  // REQUIRES that `page` is a hole and num_available() > 0.
  void Assign(PageId page);
  // Frees the window page of `page`; does nothing if it is a hole. REQUIRES no claim.
  void Release(PageId page);
  // Adds or removes one claim on the window page of `page`. REQUIRES that it is not a hole.
  void Claim(PageId page);
  void Unclaim(PageId page);
  // Moves the window page of `from`, if it has one, to `to`. REQUIRES no claim of `from`, and that
  // `to` is a hole.
  void Move(PageId from, PageId to);

  // Checks that each window page is in exactly one place, and recounts the claims. `claims`: every
  // claim held now, one entry each.
  void CheckInvariants(std::span<const PageId> claims) const;

 private:
  static constexpr int32_t kNone = -1;
  // Neighbours in the ring of window pages that may be reclaimed; kNone if it is not listed. The
  // entry past the last window page is the ring's end: its `fresher` is the oldest, its `older` the
  // freshest.
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
