#include "minisgl/kv/window_pool.h"

#include "minisgl/base/check.h"

namespace minisgl {

WindowPool::WindowPool(int32_t num_pages, int32_t num_window_pages)
    : window_of_(static_cast<size_t>(num_pages), kNone),
      claims_(static_cast<size_t>(num_pages), 0),
      page_of_(static_cast<size_t>(num_window_pages), kNone),
      links_(static_cast<size_t>(num_window_pages) + 1) {
  MINISGL_CHECK(num_window_pages >= 1 && num_window_pages <= num_pages,
                "{} window pages for {} pages", num_window_pages, num_pages);
  free_.reserve(page_of_.size());
  for (WindowPageId page = num_window_pages - 1; page >= 0; --page) free_.push_back(page);
  links_[end()] = {num_window_pages, num_window_pages};
}

void WindowPool::List(WindowPageId window_page) {
  Link& ring = links_[end()];
  Link& link = links_[static_cast<size_t>(window_page)];
  link.older = ring.older;
  link.fresher = static_cast<WindowPageId>(end());
  links_[static_cast<size_t>(ring.older)].fresher = window_page;
  ring.older = window_page;
  ++num_reclaimable_;
}

void WindowPool::Unlist(WindowPageId window_page) {
  Link& link = links_[static_cast<size_t>(window_page)];
  links_[static_cast<size_t>(link.older)].fresher = link.fresher;
  links_[static_cast<size_t>(link.fresher)].older = link.older;
  link = Link();
  --num_reclaimable_;
}

void WindowPool::Assign(PageId page) {
  MINISGL_CHECK(!Has(page), "page {} already has a window page", page);
  MINISGL_CHECK(num_available() > 0, "no window page is available");
  WindowPageId window_page = kNone;
  if (free_.empty()) {
    window_page = links_[end()].fresher;
    Unlist(window_page);
    window_of_[static_cast<size_t>(page_of_[static_cast<size_t>(window_page)])] = kNone;
    ++num_reclaimed_;
  } else {
    window_page = free_.back();
    free_.pop_back();
  }
  window_of_[static_cast<size_t>(page)] = window_page;
  page_of_[static_cast<size_t>(window_page)] = page;
  List(window_page);
}

void WindowPool::Release(PageId page) {
  const WindowPageId window_page = WindowOf(page);
  if (window_page == kNone) return;
  MINISGL_CHECK(claims_[static_cast<size_t>(page)] == 0,
                "the window page of page {} is freed and claimed", page);
  Unlist(window_page);
  window_of_[static_cast<size_t>(page)] = kNone;
  page_of_[static_cast<size_t>(window_page)] = kNone;
  free_.push_back(window_page);
}

void WindowPool::Claim(PageId page) {
  MINISGL_CHECK(Has(page), "page {} is claimed and has no window page", page);
  if (claims_[static_cast<size_t>(page)]++ == 0) Unlist(WindowOf(page));
}

void WindowPool::Unclaim(PageId page) {
  MINISGL_CHECK(claims_[static_cast<size_t>(page)] > 0, "page {} has no claim to give up", page);
  if (--claims_[static_cast<size_t>(page)] == 0) List(WindowOf(page));
}

void WindowPool::Move(PageId from, PageId to) {
  const WindowPageId window_page = WindowOf(from);
  if (window_page == kNone) return;
  MINISGL_CHECK(claims_[static_cast<size_t>(from)] == 0 && !Has(to),
                "the window page of page {} cannot move to page {}", from, to);
  window_of_[static_cast<size_t>(from)] = kNone;
  window_of_[static_cast<size_t>(to)] = window_page;
  page_of_[static_cast<size_t>(window_page)] = to;
}

void WindowPool::CheckInvariants(std::span<const PageId> claims) const {
  std::vector<int32_t> counted(claims_.size(), 0);
  for (const PageId page : claims) {
    MINISGL_CHECK(Has(page), "I4: page {} is claimed and has no window page", page);
    ++counted[static_cast<size_t>(page)];
  }
  int32_t held = 0, listed = 0;
  for (size_t page = 0; page < window_of_.size(); ++page) {
    MINISGL_CHECK(counted[page] == claims_[page], "I5: {} claims of page {} counted, {} held",
                  claims_[page], page, counted[page]);
    const WindowPageId window_page = window_of_[page];
    if (window_page == kNone) continue;
    ++held;
    MINISGL_CHECK(page_of_[static_cast<size_t>(window_page)] == static_cast<PageId>(page),
                  "I1: window page {} belongs to pages {} and {}", window_page, page,
                  page_of_[static_cast<size_t>(window_page)]);
    MINISGL_CHECK(IsListed(window_page) == (claims_[page] == 0),
                  "I5: a window page of {} claims is {}listed as reclaimable", claims_[page],
                  IsListed(window_page) ? "" : "not ");
    listed += IsListed(window_page) ? 1 : 0;
  }
  std::vector<bool> seen(page_of_.size(), false);
  for (const WindowPageId window_page : free_) {
    MINISGL_CHECK(page_of_[static_cast<size_t>(window_page)] == kNone && !IsListed(window_page) &&
                      !seen[static_cast<size_t>(window_page)],
                  "I2: window page {} is free and also in use or listed", window_page);
    seen[static_cast<size_t>(window_page)] = true;
  }
  MINISGL_CHECK(held + num_free() == num_window_pages(),
                "I1: {} window pages held and {} free of {}", held, num_free(), num_window_pages());
  int32_t reached = 0;  // entries visited along the ring
  for (WindowPageId at = links_[end()].fresher; at != static_cast<WindowPageId>(end());
       at = links_[static_cast<size_t>(at)].fresher) {
    MINISGL_CHECK(++reached <= listed, "I5: the list of reclaimable window pages has a loop");
  }
  MINISGL_CHECK(reached == listed && listed == num_reclaimable_,
                "I5: {} reclaimable window pages, {} listed, {} counted", listed, reached,
                num_reclaimable_);
}

}  // namespace minisgl
