// See kv_split.h.
#include "engine/kv_split.h"

#include <algorithm>
#include <limits>

#include "minisgl/base/checked_math.h"

namespace minisgl::engine {
namespace {

// A request of so many windows takes equal shares of pages and window pages. Chat answers are
// shorter and long documents longer. Four saves three quarters of the windowed layers' memory.
constexpr int64_t kWindowsOfRequest = 4;

constexpr int64_t kPagesMax = std::numeric_limits<int32_t>::max() - 1;

}  // namespace

std::optional<KvSplit> KvSplit::Make(const ModelConfig& config, const EngineLimits& limits,
                                     int32_t max_prefill_tokens, const KvFormat& format,
                                     int32_t num_ranks, uint64_t beside_per_token) {
  const auto own = KvBytesPerToken(config, format);
  const auto token = own ? CheckedAdd(*own, beside_per_token) : std::nullopt;
  const auto page_size = static_cast<uint64_t>(limits.page_size) * static_cast<uint64_t>(num_ranks);
  const auto all = token ? CheckedMul(*token, page_size) : std::nullopt;
  if (!all || *all == 0) return std::nullopt;
  KvSplit split;
  split.page_bytes_ = *all;
  int32_t window = 0;
  for (const LayerConfig& layer : config.layers) window = std::max(window, layer.sliding_window);
  if (window == 0) return split;
  const WindowMath math{limits.page_size, window};
  const int64_t longest = CeilDiv<int64_t>(limits.max_seq_len, limits.page_size);
  const int64_t entitled = math.PagesOf(limits.max_in_flight);
  if (entitled >= longest) return split;
  split.window_ = window;
  split.window_page_bytes_ = *WindowBytesPerToken(config, format) * page_size;  // <= *all
  split.page_bytes_ -= split.window_page_bytes_;
  split.windows_of_request_ = entitled;
  split.pages_of_request_ =
      std::min(longest, CeilDiv<int64_t>(kWindowsOfRequest * window, limits.page_size));
  // At least the entitlement, which exceeds four windows if a window is a page or less.
  split.pages_of_request_ = std::max(split.pages_of_request_, entitled);
  split.windows_of_chunks_ =
      CeilDiv<int64_t>(int64_t{limits.max_in_flight} * max_prefill_tokens, limits.page_size);
  return split;
}

int64_t KvSplit::WindowPages(int64_t num_pages) const {
  if (window_ == 0) return 0;
  const int64_t share = CeilDiv(num_pages * windows_of_request_, pages_of_request_);  // 2 ^ 62
  return std::min(num_pages, share + windows_of_chunks_);
}

std::optional<uint64_t> KvSplit::Bytes(int64_t num_pages) const {
  const auto pages = CheckedMul(static_cast<uint64_t>(num_pages) + 1, page_bytes_);
  if (window_ == 0 || !pages) return pages;
  const auto windows =
      CheckedMul(static_cast<uint64_t>(WindowPages(num_pages)) + 1, window_page_bytes_);
  return windows ? CheckedAdd(*pages, *windows) : std::nullopt;
}

int64_t KvSplit::PagesWithin(uint64_t bytes) const {
  const auto fits = [&](int64_t num_pages) {
    const auto taken = Bytes(num_pages);
    return taken && *taken <= bytes;
  };
  if (fits(kPagesMax)) return kPagesMax;
  int64_t within = 0, beyond = kPagesMax;
  while (beyond - within > 1) {
    const int64_t middle = within + (beyond - within) / 2;
    (fits(middle) ? within : beyond) = middle;
  }
  return within;
}

}  // namespace minisgl::engine
