// Pages that a sliding window covers. A query at position p attends to the keys at positions
// p - window + 1 ... p; each page holds page_size positions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "minisgl/base/checked_math.h"

namespace minisgl {

struct WindowMath {
  int32_t page_size = 1;
  int32_t window = 1;  // >= 1

  // The first page with a key that the query at position `length`, or a later one, attends to.
  int32_t FirstPage(int64_t length) const {
    return static_cast<int32_t>(std::max<int64_t>(length - window + 1, 0) / page_size);
  }
  // The number of whole pages before a page boundary with keys that a query at the boundary attends
  // to: the last min(m, PagesBefore()) pages of a prefix of m pages.
  int64_t PagesBefore() const { return CeilDiv<int64_t>(window - 1, page_size); }
  // Upper bound on the pages with keys that `count` consecutive queries attend to, for any
  // alignment: window - 1 + count positions, of which the first is the last one of its page.
  int64_t PagesOf(int64_t count) const {
    return CeilDiv<int64_t>(window - 1 + count - 1, page_size) + 1;
  }
};

}  // namespace minisgl
