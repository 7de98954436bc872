#include "runtime/stop_filter.h"

#include <algorithm>
#include <utility>

namespace minisgl::runtime {

StopFilter::StopFilter(std::vector<std::string> stops, bool keeps_stop)
    : stops_(std::move(stops)), keeps_stop_(keeps_stop) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

StopFilter::Output StopFilter::Push(std::string_view text, bool may_stop) {
  pending_ += text;
  size_t first_end = std::string::npos, cut = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = may_stop ? pending_.find(stop) : std::string::npos;
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < first_end || (end == first_end && begin < cut)) {
      first_end = end;
      cut = begin;
    }
  }
  Output output;
  if (cut != std::string::npos) {
    output.text = pending_.substr(0, keeps_stop_ ? first_end : cut);
    output.stopped = true;
    pending_.clear();
    return output;
  }
  const size_t held = HeldBack();
  output.text = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return output;
}

std::string StopFilter::Finish() { return std::exchange(pending_, std::string()); }

size_t StopFilter::HeldBack() const {
  size_t held = 0;
  const std::string_view pending = pending_;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending.size()); length > held; --length) {
      if (pending.ends_with(std::string_view(stop).substr(0, length))) {
        held = length;
        break;
      }
    }
  }
  return held;
}

}  // namespace minisgl::runtime
