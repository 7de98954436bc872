// Divides the memory for keys and values into pages and window pages.
//
// Layers with a sliding window need only the last pages of a request; other layers need all of
// them. The split is such that a request of four windows (or of the longest length, if that is
// less) takes the same share of both kinds: shorter requests run out of window pages first, longer
// ones out of pages. Window pages for the prompts of the steps in flight are added.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/kv_storage.h"
#include "minisgl/base/window_math.h"
#include "minisgl/engine/engine.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class KvSplit {
 public:
  // For requests of up to limits.max_seq_len tokens, and steps with up to `max_prefill_tokens`
  // prompt tokens. No window pages if no layer has a window, or if no page of the longest request
  // ever leaves its window. Nothing if a size exceeds 2^64. Sizes are of `num_ranks` ranks, each
  // with the heads of `config`, and in each page with `beside_per_token` bytes of a token in the
  // layers of other models.
  static std::optional<KvSplit> Make(const ModelConfig& config, const EngineLimits& limits,
                                     int32_t max_prefill_tokens, const KvFormat& format,
                                     int32_t num_ranks = 1, uint64_t beside_per_token = 0);

  // The longest window of any layer, in keys; 0 without window pages.
  int32_t window() const { return window_; }
  // Size of one page, and of one window page.
  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t window_page_bytes() const { return window_page_bytes_; }

  // Number of window pages that go with `num_pages` pages: at most num_pages.
  int64_t WindowPages(int64_t num_pages) const;
  // Size of pages, window pages and the two dummies. Nothing if it exceeds 2^64.
  std::optional<uint64_t> Bytes(int64_t num_pages) const;
  // The largest number of pages, not counting dummies, whose Bytes are at most `bytes`; 0 if one
  // page does not fit.
  int64_t PagesWithin(uint64_t bytes) const;

 private:
  int32_t window_ = 0;
  uint64_t page_bytes_ = 0, window_page_bytes_ = 0;
  int64_t windows_of_request_ = 0;  // window pages of a request of `pages_of_request_` pages
  int64_t pages_of_request_ = 0;
  int64_t windows_of_chunks_ = 0;  // window pages of the prompts of all steps in flight
};

}  // namespace minisgl::engine
