// How many pages, and how many window pages, the bytes for keys and values make.
//
// Layers with a sliding window need a request's last pages alone, layers without need all of them.
// The two are given so much that a request of four windows (or of the longest length, where that is
// less) takes the same part of either; shorter ones run out of window pages first, longer ones of
// pages. What the prompts of the steps in flight take at once comes on top.
#pragma once

#include <cstdint>
#include <optional>

#include "minisgl/base/window_math.h"
#include "minisgl/engine/engine.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class KvSplit {
 public:
  // For requests of up to limits.max_seq_len tokens, and steps of up to `max_prefill_tokens` of a
  // prompt. No window pages where no layer has a window, or where the longest request has no page
  // that leaves it. Nothing where a size is past 2^64.
  static std::optional<KvSplit> Make(const ModelConfig& config, const EngineLimits& limits,
                                     int32_t max_prefill_tokens, DType dtype);

  // The longest window of any layer, in keys; 0: there are no window pages.
  int32_t window() const { return window_; }
  // Of one page, and of one window page.
  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t window_page_bytes() const { return window_page_bytes_; }

  // Window pages beside `num_pages` pages: at most as many.
  int64_t WindowPages(int64_t num_pages) const;
  // Of pages, window pages and the two dummies. Nothing where that is past 2^64.
  std::optional<uint64_t> Bytes(int64_t num_pages) const;
  // The most pages, the dummies apart, that take at most `bytes`; 0 where not one does.
  int64_t PagesWithin(uint64_t bytes) const;

 private:
  int32_t window_ = 0;
  uint64_t page_bytes_ = 0, window_page_bytes_ = 0;
  int64_t windows_of_request_ = 0;  // of one of `pages_of_request_` pages
  int64_t pages_of_request_ = 0;
  int64_t windows_of_chunks_ = 0;  // of the prompts of all steps in flight
};

}  // namespace minisgl::engine
