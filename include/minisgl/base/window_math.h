// Which pages a sliding window reaches. A query at position p sees the keys of positions p - window
// + 1 ... p; pages hold page_size positions each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "minisgl/base/checked_math.h"

namespace minisgl {

struct WindowMath {
  int32_t page_size = 1;
  int32_t window = 1;  // >= 1

  // The first page with a key that the query at position `length` sees, or any later one.
  int32_t FirstPage(int64_t length) const {
    return static_cast<int32_t>(std::max<int64_t>(length - window + 1, 0) / page_size);
  }
  // How many whole pages before a page boundary hold keys that a query at the boundary sees: of a
  // prefix of m pages the last min(m, this).
  int64_t PagesBefore() const { return CeilDiv<int64_t>(window - 1, page_size); }
  // The most pages that the keys seen by `count` consecutive queries stand in, however they lie:
  // window - 1 + count positions, the first of them the last of its page.
  int64_t PagesOf(int64_t count) const {
    return CeilDiv<int64_t>(window - 1 + count - 1, page_size) + 1;
  }
};

}  // namespace minisgl
