// Files of the network that rows name: each URL is fetched once for as long as its result is kept,
// however many threads ask for it. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::batch {

class FetchedFiles {
 public:
  using Fetch = std::function<Result<std::string>(const std::string& url)>;
  using Bytes = std::shared_ptr<const std::string>;

  // Keeps results of the last `count_max` URLs, and of fewer if their bytes are more than
  // `bytes_max`.
  FetchedFiles(size_t count_max, uint64_t bytes_max)
      : count_max_(count_max), bytes_max_(bytes_max) {}

  // The file at `url`, by `fetch` if it is not kept; waits if another thread fetches it. A failure
  // is kept, too: a host that does not answer is waited for once.
  Result<Bytes> Get(const std::string& url, const Fetch& fetch);

 private:
  struct Kept {
    std::string url;
    std::shared_future<Result<Bytes>> result;
    uint64_t num_bytes = 0;  // 0 until it is fetched
  };
  // After `url` has come: drops the ones that were used longest ago, if they are fetched.
  void Keep(const std::string& url, uint64_t num_bytes);

  const size_t count_max_;
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the last used first; guarded by mutex_, like the next
  uint64_t num_bytes_ = 0;
};

}  // namespace minisgl::batch
