// Finds stop strings in a text that comes in pieces, and holds back text that may still become part
// of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minisgl::runtime {

class StopFilter {
 public:
  // Empty strings in `stops` are ignored. `keeps_stop`: the text ends with the stop string.
  explicit StopFilter(std::vector<std::string> stops, bool keeps_stop = false);

  struct Output {
    std::string text;  // certain: can no longer be part of a stop string
    // A stop string was found: `text` ends before it, or with it, and the text after it is dropped.
    bool stopped = false;
  };
  // If several stop strings match, the one that is complete first counts. Without `may_stop` a
  // complete one is ordinary text, but an incomplete one is still held back. REQUIRES that no stop
  // string was found before.
  Output Push(std::string_view text, bool may_stop = true);
  // Ends the text. Returns the text held back, which became no stop string.
  std::string Finish();

 private:
  size_t HeldBack() const;  // bytes at the end of pending_ that may begin a stop string

  std::vector<std::string> stops_;
  bool keeps_stop_;
  std::string pending_;
};

}  // namespace minisgl::runtime
