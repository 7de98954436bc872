// Writes what happens in the prefix cache as JSON Lines: one line for each block that is stored or
// evicted, and one for a reset. A block is a page of the KV pool.
//
// A block's hash is the SHA-256 of its parent's hash (32 bytes; none for the first block of a
// prompt) followed by its token ids, 4 bytes each, least significant first, and by the marks in the
// block (AddMarks in base/prefix_key.h). So a hash names a whole prefix, and who knows a prompt's
// token ids and marks can compute it.
//
// Used by the runtime's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/sha256.h"
#include "minisgl/kv/cache_observer.h"

namespace minisgl::runtime {

class CacheEventWriter final : public CacheObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Sink = std::function<void(std::string_view)>;

  // Writes the line that comes first, with the sizes of blocks and of the cache. `now` gives the
  // time of what happens. Times are written as seconds since 1970, of the system's clock at the
  // start and of `now` from then on, so that they never decrease.
  CacheEventWriter(Sink sink, std::function<Time()> now, int32_t page_size, int32_t num_pages);

  void Stored(std::optional<PageId> parent, const PrefixKey& key,
              std::span<const PageId> pages) override;
  void Evicted(std::span<const PageId> pages) override;
  void Reset(int64_t pages_left) override;

  // Passes whole lines to the sink, if there are any.
  void Flush();

 private:
  // What a page holds.
  struct Block {
    Sha256::Digest hash{};
    Sha256::Digest parent{};
    int64_t prefix_tokens = 0;  // up to its end; 0: nothing
  };

  void BeginLine(std::string_view event);
  void AppendBlock(std::string_view event, const Block& block);

  Sink sink_;
  std::function<Time()> now_;
  const int64_t page_size_;
  Time start_;
  std::chrono::microseconds epoch_;  // since 1970, at start_
  std::vector<Block> blocks_;        // by page
  std::string buffer_;
};

}  // namespace minisgl::runtime
