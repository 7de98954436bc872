#include "batch/fetched_files.h"

#include <algorithm>
#include <utility>

namespace minisgl::batch {

Result<FetchedFiles::Bytes> FetchedFiles::Get(const std::string& url, const Fetch& fetch) {
  std::promise<Result<Bytes>> promise;
  {
    std::unique_lock lock(mutex_);
    const auto known = std::find_if(kept_.begin(), kept_.end(),
                                    [&url](const Kept& kept) { return kept.url == url; });
    if (known != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, known);
      const std::shared_future<Result<Bytes>> result = known->result;
      lock.unlock();
      return result.get();
    }
    kept_.push_front({url, promise.get_future().share()});
  }
  Result<std::string> fetched = fetch(url);
  if (!fetched.ok()) {
    promise.set_value(fetched.status());
    Keep(url, 0);
    return fetched.status();
  }
  Bytes bytes = std::make_shared<const std::string>(std::move(fetched).value());
  promise.set_value(bytes);
  Keep(url, bytes->size());
  return bytes;
}

void FetchedFiles::Keep(const std::string& url, uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  const auto own = std::find_if(kept_.begin(), kept_.end(),
                                [&url](const Kept& kept) { return kept.url == url; });
  if (own == kept_.end()) return;
  own->num_bytes = num_bytes;
  num_bytes_ += num_bytes;
  while (!kept_.empty() && (kept_.size() > count_max_ || num_bytes_ > bytes_max_)) {
    num_bytes_ -= kept_.back().num_bytes;
    kept_.pop_back();  // who waits for it has the future
  }
}

}  // namespace minisgl::batch
